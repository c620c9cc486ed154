//! How a pass is cut: its kernel, its tiles, and the splits of its reduction.

use device::{Access, Arg, Gpu, Launch, Workspace};

use super::CHUNK;
use super::variants::{DEPTH, GRAD_INPUT, GRAD_WEIGHT, Problem, Variant};
use crate::matmul::ConvShape;

/// Blocks that fill a GPU: two on each of the 132 multiprocessors of an H100. The same for every
/// target today, so that the order of a sum does not depend on it.
const BLOCKS_TO_FILL: usize = 264;
/// k-blocks of a split, at least, to be worth its partial sums.
const MIN_SPLIT_K_BLOCKS: usize = 8;

/// The matrices of a pass and how they are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan {
    variant: Variant,
    /// Tiles of the output.
    tiles: usize,
    /// Splits of the reduction, summed by a second kernel if there are several.
    pub splits: usize,
    /// Elements of the output.
    len: usize,
}

impl Plan {
    /// A plan for an output of `len` elements.
    fn new(table: &[Variant], gpu: &Gpu, problem: Problem, len: usize) -> Self {
        let variant = Variant::choose(table, gpu, &problem);
        let tiles = variant.tiles(problem.extents);
        let wanted = BLOCKS_TO_FILL / (tiles * problem.classes).max(1);
        let splits = wanted.min(problem.k_blocks / MIN_SPLIT_K_BLOCKS).max(1);
        Self { variant, tiles, splits, len }
    }

    /// The forward pass, by a kernel of [`FORWARD`] or a table like it.
    pub(super) fn forward(table: &[Variant], gpu: &Gpu, s: &ConvShape) -> Self {
        let (rows, aligned) = (s.out_positions(), s.channels.is_multiple_of(CHUNK));
        let k_blocks = k_blocks(s.kernel_h * s.kernel_w, s.channels, aligned);
        let problem = Problem { extents: [rows, s.filters], classes: 1, k_blocks, aligned };
        Self::new(table, gpu, problem, rows * s.filters)
    }

    /// The gradient of the input: a product for each residue of both coordinates by the stride.
    pub(super) fn grad_input(gpu: &Gpu, s: &ConvShape) -> Self {
        let largest = s.height.div_ceil(s.stride) * s.width.div_ceil(s.stride);
        let aligned = is_aligned(s);
        let taps = s.kernel_h.div_ceil(s.stride) * s.kernel_w.div_ceil(s.stride);
        let problem = Problem {
            extents: [s.images * largest, s.channels],
            classes: s.stride * s.stride,
            k_blocks: k_blocks(taps, s.filters, aligned),
            aligned,
        };
        Self::new(GRAD_INPUT, gpu, problem, s.images * s.height * s.width * s.channels)
    }

    /// The gradient of the weights.
    pub(super) fn grad_weight(gpu: &Gpu, s: &ConvShape) -> Self {
        let problem = Problem {
            extents: [s.filters, s.filter_len()],
            classes: 1,
            k_blocks: s.out_positions().div_ceil(DEPTH),
            aligned: is_aligned(s),
        };
        Self::new(GRAD_WEIGHT, gpu, problem, s.filters * s.filter_len())
    }

    /// Bytes of the partial sums, 0 if the reduction is not split.
    pub(super) fn partial_bytes(&self) -> usize {
        if self.splits > 1 { self.splits * self.len * 4 } else { 0 }
    }

    /// The partial sums, from `offset` of the workspace on.
    pub(super) fn partials(&self, workspace: &Workspace, offset: usize, access: Access) -> Arg {
        match self.partial_bytes() {
            0 => Arg::Null,
            bytes => workspace.piece(offset, bytes, access),
        }
    }

    /// A launch of the kernel, without arguments.
    pub(super) fn launch(&self, classes: usize) -> Launch {
        self.variant.launch([self.tiles, classes, self.splits])
    }
}

/// True if all tensors of a gradient can be read in 16-byte chunks.
fn is_aligned(s: &ConvShape) -> bool {
    s.channels.is_multiple_of(CHUNK) && s.filters.is_multiple_of(CHUNK)
}

/// k-blocks of a reduction over taps and channels, as the kernels walk it.
fn k_blocks(taps: usize, channels: usize, aligned: bool) -> usize {
    if aligned { taps * channels.div_ceil(DEPTH) } else { (taps * channels).div_ceil(DEPTH) }
}

#[cfg(test)]
mod tests {
    use super::super::variants::FORWARD;
    use super::*;

    #[test]
    fn plans_follow_the_shape() {
        let conv = |images: usize, side: usize, channels: usize| ConvShape {
            images,
            height: side,
            width: side,
            channels,
            out_height: side,
            out_width: side,
            ..SHAPE
        };
        let a100 = Gpu::a100();
        let forward = |shape: &ConvShape| Plan::forward(FORWARD, &a100, shape);
        let large = forward(&conv(12, 100, 256));
        assert_eq!((large.variant, large.splits, large.partial_bytes()), (FORWARD[0], 1, 0));
        assert_eq!(forward(&conv(1, 13, 255)).variant, FORWARD[2]);
        // Twelve small tiles: 22 splits would fill the GPU, and 8 k-blocks each allow 9.
        let split = forward(&conv(1, 13, 256));
        assert_eq!((split.variant, split.tiles, split.splits), (FORWARD[1], 12, 9));
        let weight = Plan::grad_weight(&a100, &conv(12, 100, 256));
        assert_eq!((weight.variant, weight.tiles, weight.splits), (GRAD_WEIGHT[0], 36, 7));
    }

    /// Splits and tiles are those of every target today, and with them the order of each sum.
    #[test]
    fn plans_are_the_same_on_every_gpu() {
        for name in Gpu::NAMES {
            let gpu = Gpu::named(name).unwrap();
            let plan = |gpu| Plan::forward(FORWARD, gpu, &SHAPE);
            assert_eq!(plan(&gpu), plan(&Gpu::a100()));
        }
    }

    const SHAPE: ConvShape = ConvShape {
        images: 2,
        height: 25,
        width: 34,
        channels: 256,
        filters: 256,
        kernel_h: 3,
        kernel_w: 3,
        stride: 1,
        pad: 1,
        out_height: 25,
        out_width: 34,
    };
}
