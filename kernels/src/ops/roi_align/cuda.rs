//! CUDA launches of `roi_align` and its gradient.

use device::{Access, Arg, Buffer, Launch, LaunchArgs, StructArg};

use super::RoiAlign;
use super::pyramid::Pyramid;

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
    let [pooled, ratio] =
        [pooled, sampling_ratio].map(|v| i32::try_from(v).expect("a grid that fits an int"));
    StructArg::new().field([pooled, ratio, i32::from(aligned)]).arg()
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
    let launch = rest.iter().fold(launch, |launch, input| launch.arg(input.read()));
    vec![
        launch
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

/// Bytes of the lists of RoIs of each image and level.
pub(super) fn backward_workspace(images: usize, levels: usize, rows: usize) -> usize {
    pieces(images, levels, rows)[3]
}

pub(super) fn backward(
    op: &RoiAlign,
    images: usize,
    level_sizes: &[[usize; 2]],
    args: &LaunchArgs<'_>,
) -> Vec<Launch> {
    let (g, rois) = (args.inputs[0], args.inputs[1]);
    let rows = rois.dim(0);
    assert!(op.pooled <= MAX_BINS, "{} bins a side of at most {MAX_BINS}", op.pooled);
    let largest = level_sizes.iter().flatten().max().copied().unwrap_or(0);
    assert!(largest < 1 << 15, "maps of {largest} pixels do not fit 16 bits");
    // The listing kernel takes the sizes of the maps only.
    let [pyramid, sizes] = [args.outputs.iter().map(Buffer::write).collect(), vec![]].map(|maps| {
        let (sizes, scales) = (level_sizes, &op.spatial_scales[..]);
        Pyramid { maps, sizes, scales, images, channels: g.dim(3) }
    });
    let [lists, starts, lens, end] = pieces(images, level_sizes.len(), rows);
    let scratch = |access| {
        [(lists, starts), (starts, lens), (lens, end)]
            .map(|(from, to)| args.workspace.piece(from, to - from, access))
    };
    let grid = grid_arg(op.pooled, op.sampling_ratio, op.aligned);
    let list = Launch::new("roi_align_grad_lists", [images * level_sizes.len(), 1, 1]);
    let list = args.inputs[1..]
        .iter()
        .fold(list.block(LIST_BLOCK).arg(sizes.arg()), |launch, input| launch.arg(input.read()));
    let list = scratch(Access::Write).into_iter().fold(list, Launch::arg);
    let kernel = if pyramid.vector() == 8 {
        "roi_align_grad_tiles_f16x8"
    } else {
        "roi_align_grad_tiles_f16"
    };
    let tiles = Launch::new(kernel, pyramid.tile_grid())
        .shared(BATCH * LINES * op.pooled * 4)
        .arg(g.read())
        .arg(rois.read());
    let tiles = scratch(Access::Read).into_iter().fold(tiles, Launch::arg);
    vec![list.arg(grid.clone()).int(rows), tiles.arg(pyramid.arg()).arg(grid)]
}
