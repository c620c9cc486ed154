//! RoIAlign over a feature pyramid: for each RoI a P x P grid of averages of bilinear samples, read
//! from the RoI's level.
//!
//! Matches torchvision's `roi_align` and `MultiScaleRoIAlign`: a bin is the mean of
//! `sampling_ratio` squared samples (0: as many per side as the bin has feature pixels, rounded
//! up); `aligned` shifts by half a pixel, otherwise a RoI is at least one feature pixel wide and
//! high; samples below -1 or above the map's extent count as 0. Numerics: the mean is separable, so
//! the samples of a bin are merged into weights per feature row and column first; f32, fixed order.
//! Edge cases: non-finite coordinates give NaN or 0, never an invalid access; an adaptive grid has
//! at most 4096 samples per side. Memory-bound: every feature row of a RoI is read once or twice
//! from cache.

mod cases;
mod cpu;
pub(crate) mod pyramid;
pub(crate) mod taps;

use device::{Access, Arg, Buffer, Launch, LaunchArgs, StructArg, Workspace};

use crate::contract::{Declared, Dims, Kernel};
use crate::cpu::CpuArgs;
use crate::{BackwardRule, Cost, OpError, Role, Sink, Source, TensorDesc, check, op};
use pyramid::Pyramid;

pub use cases::cases;

op! {
    /// RoIAlign from the level that each RoI belongs to.
    pub struct RoiAlign = "roi_align" {
        /// Bins per side of the output, P.
        pub pooled: usize [|pooled| *pooled > 0, "at least 1"],
        /// Samples per side of a bin; 0 = adaptive.
        pub sampling_ratio: usize,
        /// Half-pixel shift (Detectron2's "aligned"), and no minimum size.
        pub aligned: bool,
        /// Feature pixels per network pixel, of each level.
        pub spatial_scales: Vec<f32> [|scales| scales.iter().all(|&s| s > 0.0), "above 0"],
        /// Factor that is applied only to the gradient: 1, or 1 / stages in a cascade.
        pub gradient_scale: f32,
    }
    lists {
        /// Map of a level.
        features: real "[N, h, w, C]",
    }
    in RoiAlignInputs {
        /// x1, y1, x2, y2 in network pixels.
        rois: f32 "[M, 4]",
        /// Image of each RoI.
        image_idx: i32 "[M]",
        /// Level of each RoI.
        levels: i32 "[M]",
        /// Number of RoIs in use.
        count: i32 "[1]",
    }
    out {
        /// 0 in rows at or past the count or without an image. Has the role of the maps.
        y: Activation "[M, P, P, C]",
    }
}

op! {
    /// Adds the gradients of RoIs to the maps of their levels: an output `[N, h, w, C]` for each
    /// level. Deterministic without atomics: each element sums its RoIs in order. On CUDA P is at
    /// most 32.
    pub struct RoiAlignGrad = "roi_align_grad" {
        /// The forward op.
        pub forward: RoiAlign,
        /// N, images per map.
        pub images: usize,
        /// Height and width of each level's map.
        pub level_sizes: Vec<[usize; 2]>,
    }
    in RoiAlignGradInputs {
        /// Gradient of the bins.
        grad_output: real "[M, P, P, C]",
        /// As in [`RoiAlign`].
        rois: f32 "[M, 4]",
        /// Image of each RoI.
        image_idx: i32 "[M]",
        /// Level of each RoI.
        levels: i32 "[M]",
        /// Number of RoIs in use.
        count: i32 "[1]",
    }
    out {}
}

impl RoiAlign {
    fn grid(&self) -> taps::Grid {
        let Self { pooled, sampling_ratio, aligned, .. } = *self;
        taps::Grid { pooled, sampling_ratio, aligned }
    }
}

impl Kernel for RoiAlign {
    const KEEPS_ROLE: bool = true;

    fn sizes(&self, dims: &mut Dims) {
        dims.bind("P", self.pooled);
    }

    fn check(&self, inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        check::arity(dims.op(), "inputs", inputs, self.spatial_scales.len() + 4)
    }

    /// Four taps per sample; assumes that the RoIs cover all features.
    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let samples = self.sampling_ratio.max(1).pow(2);
        Cost::streaming(inputs, outputs, (outputs[0].len() * samples * 8) as u64)
    }

    fn backward(&self, inputs: &[TensorDesc]) -> BackwardRule {
        let levels = self.spatial_scales.len();
        let grad = RoiAlignGrad {
            forward: self.clone(),
            images: inputs[0].shape[0],
            level_sizes: inputs[..levels].iter().map(|f| [f.dim(1), f.dim(2)]).collect(),
        };
        let mut reads = vec![Source::GradOutput(0)];
        reads.extend((levels..inputs.len()).map(Source::Input));
        let writes: Vec<_> = (0..levels).map(Sink::GradInput).collect();
        BackwardRule::default().step(grad, &reads, &writes)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let (features, rest) = args.inputs.split_at(self.spatial_scales.len());
        let sizes: Vec<_> = features.iter().map(|f| [f.dim(1), f.dim(2)]).collect();
        let pyramid = Pyramid {
            maps: features.iter().map(Buffer::read).collect(),
            sizes: &sizes,
            scales: &self.spatial_scales,
            images: features[0].dim(0),
            channels: features[0].dim(3),
        };
        let capacity = tap_capacity(self, &sizes);
        // For both axes: 8 bytes per tap, and an offset and a count per bin.
        let shared = 2 * 8 * capacity + 2 * 2 * 4 * self.pooled;
        assert!(shared <= SHARED_BYTES, "{self:?} needs {shared} bytes of shared memory");
        let kernel = if pyramid.vector() == 8 { "roi_align_f16x8" } else { "roi_align_f16" };
        let launch = Launch::new(kernel, [rest[0].dim(0), 1, 1]).shared(shared).arg(pyramid.arg());
        vec![
            launch
                .args(rest.iter().map(Buffer::read))
                .arg(args.outputs[0].write())
                .arg(grid_arg(self.pooled, self.sampling_ratio, self.aligned))
                .int(capacity),
        ]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let RoiAlignInputs { features, rois, image_idx, levels, count } =
            RoiAlignInputs::of(&args.inputs);
        let maps: Vec<_> = features.iter().map(|f| cpu::Map::new(f.f32(), f.shape())).collect();
        let rois = cpu::Rois::of([rois, image_idx, levels, count], &self.spatial_scales);
        cpu::forward(self.grid(), &maps, &rois, args.outputs[0].f32());
    }
}

/// Shared memory per block without opting in to more.
const SHARED_BYTES: usize = 48 << 10;
/// Maximum bins per side in the gradient, whose bin masks have 32 bits.
const MAX_BINS: usize = 32;
/// RoIs whose weights a tile's block holds in shared memory at a time.
const BATCH: usize = 8;
/// Rows plus columns of a tile.
const LINES: usize = 16;
/// Threads of a block that lists RoIs.
const LIST_BLOCK: u32 = 1024;
/// Bytes of a RoI's entry in the lists.
const ENTRY_BYTES: usize = 16;

/// The kernel argument `RoiGrid`.
fn grid_arg(pooled: usize, sampling_ratio: usize, aligned: bool) -> Arg {
    StructArg::new().ints([pooled, sampling_ratio, usize::from(aligned)]).arg()
}

/// Maximum taps per axis. Consecutive samples of an adaptive grid are at most a pixel apart, so
/// each bin adds at most two taps more than the pixels it covers; neighbouring bins do not share
/// covered pixels.
fn tap_capacity(op: &RoiAlign, sizes: &[[usize; 2]]) -> usize {
    if op.sampling_ratio > 0 {
        return 2 * op.sampling_ratio * op.pooled;
    }
    sizes.iter().flatten().max().copied().unwrap_or(0) + 3 * op.pooled
}

/// The workspace of the RoI lists, one per image and level: byte offsets of the entries, of the
/// list starts and of the list lengths, and the number of bytes.
fn pieces(images: usize, levels: usize, rows: usize) -> [usize; 4] {
    let ints = (images * levels * 4).next_multiple_of(256);
    let lists = (rows * ENTRY_BYTES).next_multiple_of(256);
    [0, lists, lists + ints, lists + 2 * ints]
}

/// Shared memory of a tile's block for RoIs with this number of bins per side.
pub(crate) fn tile_shared_bytes(pooled: usize) -> usize {
    BATCH * LINES * pooled * size_of::<f32>()
}

impl RoiAlignGrad {
    /// Bytes of the lists of `rows` RoIs, one list per image and level.
    pub(crate) fn list_bytes(&self, rows: usize) -> usize {
        pieces(self.images, self.level_sizes.len(), rows)[3]
    }

    /// Maps of this gradient, as a kernel argument.
    pub(crate) fn pyramid(&self, maps: Vec<Arg>, channels: usize) -> Pyramid<'_> {
        let (sizes, scales) = (&self.level_sizes[..], &self.forward.spatial_scales[..]);
        Pyramid { maps, sizes, scales, images: self.images, channels }
    }

    /// Launch that writes the lists of the RoIs of `inputs` (the op's inputs) at `offset` of the
    /// workspace, and the kernel argument `RoiGradients` for these lists.
    pub(crate) fn lists(
        &self,
        workspace: &Workspace,
        offset: usize,
        inputs: &[Buffer<'_>],
    ) -> (Launch, Arg) {
        let RoiAlign { pooled, sampling_ratio, aligned, .. } = self.forward;
        let (g, rois, levels) = (inputs[0], inputs[1], self.level_sizes.len());
        let rows = rois.dim(0);
        assert!(pooled <= MAX_BINS, "{pooled} bins per side; at most {MAX_BINS} are supported");
        let largest = self.level_sizes.iter().flatten().max().copied().unwrap_or(0);
        assert!(largest < 1 << 15, "a map side of {largest} pixels is above the limit of 32767");
        let [lists, starts, lens, end] = pieces(self.images, levels, rows);
        let scratch = |access| {
            [(lists, starts), (starts, lens), (lens, end)]
                .map(|(from, to)| workspace.piece(offset + from, to - from, access))
        };
        // The listing kernel reads only the sizes of the maps.
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

/// The kernel argument `RoiGradients`.
fn gradients_arg(pointers: Vec<Arg>, sizes: [usize; 4], scale: f32) -> Arg {
    StructArg::new().pointers(pointers, 5).ints(sizes).field(scale).arg()
}

/// The kernel argument `RoiGradients` without RoIs.
pub(crate) fn no_gradients() -> Arg {
    gradients_arg(vec![], [1, 1, 0, 0], 1.0)
}

impl Kernel for RoiAlignGrad {
    fn sizes(&self, dims: &mut Dims) {
        dims.bind("P", self.forward.pooled);
    }

    fn check(&self, _inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        let (sizes, scales) = (self.level_sizes.len(), self.forward.spatial_scales.len());
        let expected = format!("{scales}, one per scale");
        check::parameter(dims.op(), "level_sizes", sizes == scales, &expected, sizes)?;
        self.forward.check_parameters()
    }

    fn adjust(&self, inputs: &[TensorDesc], outputs: &mut Vec<TensorDesc>) {
        let channels = inputs[0].dim(3);
        outputs.extend(self.level_sizes.iter().map(|&[height, width]| {
            TensorDesc::new(Role::Gradient, &[self.images, height, width, channels])
        }));
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let samples = self.forward.sampling_ratio.max(1).pow(2);
        Cost::streaming(inputs, outputs, (inputs[0].len() * samples * 8) as u64)
    }

    fn cuda_workspace_bytes(&self, inputs: &[TensorDesc]) -> usize {
        self.list_bytes(inputs[1].dim(0))
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let (list, gradients) = self.lists(&args.workspace, 0, &args.inputs);
        let maps = args.outputs.iter().map(Buffer::write).collect();
        let pyramid = self.pyramid(maps, args.inputs[0].dim(3));
        let wide = pyramid.vector() == 8;
        let kernel = if wide { "roi_align_grad_tiles_f16x8" } else { "roi_align_grad_tiles_f16" };
        let tiles = Launch::new(kernel, pyramid.tile_grid())
            .shared(tile_shared_bytes(self.forward.pooled))
            .arg(gradients)
            .arg(pyramid.arg());
        vec![list, tiles]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let RoiAlignGradInputs { grad_output, rois, image_idx, levels, count } =
            RoiAlignGradInputs::of(&args.inputs);
        let rois = cpu::Rois::of([rois, image_idx, levels, count], &self.forward.spatial_scales);
        let gradient = (grad_output, self.forward.gradient_scale);
        cpu::backward(self.forward.grid(), &self.level_sizes, gradient, &rois, &mut args.outputs);
    }
}
