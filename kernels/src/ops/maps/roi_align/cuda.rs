//! CUDA launches of `roi_align` and its gradient.

use device::{Access, Arg, Buffer, Launch, LaunchArgs, StructArg, Workspace};

use super::pyramid::Pyramid;
use super::{RoiAlign, RoiAlignGrad};

/// Shared memory per block without asking for more.
const SHARED_BYTES: usize = 48 << 10;
/// Most bins a side in the gradient, whose sets of bins are 32 bits.
const MAX_BINS: usize = 32;
/// RoIs whose weights a tile's block holds.
const BATCH: usize = 8;
/// Rows and columns of a tile.
const LINES: usize = 16;
/// Threads per block that lists RoIs.
const LIST_BLOCK: u32 = 1024;
/// Bytes of a RoI's entry in the lists.
const ENTRY_BYTES: usize = 16;

/// The kernels' `RoiGrid`.
fn grid_arg(pooled: usize, sampling_ratio: usize, aligned: bool) -> Arg {
    StructArg::new().ints([pooled, sampling_ratio, usize::from(aligned)]).arg()
}

/// Most taps of an axis. Samples of an adaptive grid ascend by at most a pixel, so that each bin
/// adds at most the pixels it covers and two, of which neighbours share none.
fn tap_capacity(op: &RoiAlign, sizes: &[[usize; 2]]) -> usize {
    if op.sampling_ratio > 0 {
        return 2 * op.sampling_ratio * op.pooled;
    }
    sizes.iter().flatten().max().copied().unwrap_or(0) + 3 * op.pooled
}

pub(super) fn forward(op: &RoiAlign, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let (features, rest) = args.inputs.split_at(op.spatial_scales.len());
    let sizes: Vec<_> = features.iter().map(|f| [f.dim(1), f.dim(2)]).collect();
    let pyramid = Pyramid {
        maps: features.iter().map(Buffer::read).collect(),
        sizes: &sizes,
        scales: &op.spatial_scales,
        images: features[0].dim(0),
        channels: features[0].dim(3),
    };
    let capacity = tap_capacity(op, &sizes);
    // Both axes: 8 bytes a tap; place and number of each bin's.
    let shared = 2 * 8 * capacity + 2 * 2 * 4 * op.pooled;
    assert!(shared <= SHARED_BYTES, "{op:?} needs {shared} bytes of shared memory");
    let kernel = if pyramid.vector() == 8 { "roi_align_f16x8" } else { "roi_align_f16" };
    let launch = Launch::new(kernel, [rest[0].dim(0), 1, 1]).shared(shared).arg(pyramid.arg());
    vec![
        launch
            .args(rest.iter().map(Buffer::read))
            .arg(args.outputs[0].write())
            .arg(grid_arg(op.pooled, op.sampling_ratio, op.aligned))
            .int(capacity),
    ]
}

/// Offsets of the lists, their starts and their lengths in the workspace, and its end.
fn pieces(images: usize, levels: usize, rows: usize) -> [usize; 4] {
    let ints = (images * levels * 4).next_multiple_of(256);
    let lists = (rows * ENTRY_BYTES).next_multiple_of(256);
    [0, lists, lists + ints, lists + 2 * ints]
}

/// Shared memory of a tile's block for RoIs of this many bins a side.
pub(crate) fn tile_shared_bytes(pooled: usize) -> usize {
    BATCH * LINES * pooled * size_of::<f32>()
}

impl RoiAlignGrad {
    /// Bytes of the lists of `rows` RoIs by image and level.
    pub(crate) fn list_bytes(&self, rows: usize) -> usize {
        pieces(self.images, self.level_sizes.len(), rows)[3]
    }

    /// Maps of this gradient, as an argument.
    pub(crate) fn pyramid(&self, maps: Vec<Arg>, channels: usize) -> Pyramid<'_> {
        let (sizes, scales) = (&self.level_sizes[..], &self.forward.spatial_scales[..]);
        Pyramid { maps, sizes, scales, images: self.images, channels }
    }

    /// Lists the RoIs of `inputs`, which are those of the op, at `offset` of the workspace; and the
    /// kernels' `RoiGradients` of these lists.
    pub(crate) fn lists(
        &self,
        workspace: &Workspace,
        offset: usize,
        inputs: &[Buffer<'_>],
    ) -> (Launch, Arg) {
        let RoiAlign { pooled, sampling_ratio, aligned, .. } = self.forward;
        let (g, rois, levels) = (inputs[0], inputs[1], self.level_sizes.len());
        let rows = rois.dim(0);
        assert!(pooled <= MAX_BINS, "{pooled} bins a side of at most {MAX_BINS}");
        let largest = self.level_sizes.iter().flatten().max().copied().unwrap_or(0);
        assert!(largest < 1 << 15, "maps of {largest} pixels do not fit 16 bits");
        let [lists, starts, lens, end] = pieces(self.images, levels, rows);
        let scratch = |access| {
            [(lists, starts), (starts, lens), (lens, end)]
                .map(|(from, to)| workspace.piece(offset + from, to - from, access))
        };
        // The listing kernel takes the sizes of the maps only.
        let list = Launch::new("roi_align_grad_lists", [self.images * levels, 1, 1])
            .block(LIST_BLOCK)
            .arg(self.pyramid(vec![], g.dim(3)).arg());
        let list = list.args(inputs[1..].iter().map(Buffer::read)).args(scratch(Access::Write));
        let list = list.arg(grid_arg(pooled, sampling_ratio, aligned)).int(rows);
        let pointers = [vec![g.read(), rois.read()], scratch(Access::Read).to_vec()].concat();
        let sizes = [pooled, sampling_ratio, usize::from(aligned), levels];
        (list, gradients_arg(pointers, sizes, self.forward.gradient_scale))
    }
}

/// The kernels' `RoiGradients`.
fn gradients_arg(pointers: Vec<Arg>, sizes: [usize; 4], scale: f32) -> Arg {
    StructArg::new().pointers(pointers, 5).ints(sizes).field(scale).arg()
}

/// `RoiGradients` of no RoIs.
pub(crate) fn no_gradients() -> Arg {
    gradients_arg(vec![], [1, 1, 0, 0], 1.0)
}

pub(super) fn backward(op: &RoiAlignGrad, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let (list, gradients) = op.lists(&args.workspace, 0, &args.inputs);
    let maps = args.outputs.iter().map(Buffer::write).collect();
    let pyramid = op.pyramid(maps, args.inputs[0].dim(3));
    let wide = pyramid.vector() == 8;
    let kernel = if wide { "roi_align_grad_tiles_f16x8" } else { "roi_align_grad_tiles_f16" };
    let tiles = Launch::new(kernel, pyramid.tile_grid())
        .shared(tile_shared_bytes(op.forward.pooled))
        .arg(gradients)
        .arg(pyramid.arg());
    vec![list, tiles]
}
