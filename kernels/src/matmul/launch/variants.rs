//! The kernels for each pass, as tables: the first whose conditions hold runs.

use device::architecture::Architecture;
use device::{Gpu, Launch};

use super::CHUNK;

/// Values of the reduction in a k-block.
pub(super) const DEPTH: usize = 32;
/// Threads per block.
const THREADS: u32 = 128;

/// One kernel for a pass, and when it may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Variant {
    /// Name of the `extern "C"` kernel.
    pub kernel: &'static str,
    /// Rows and columns of the output that a block makes.
    pub tile: [usize; 2],
    /// Threads per block.
    threads: u32,
    /// k-blocks in shared memory at once: the stages of the cp.async ring.
    stages: usize,
    /// The least architecture.
    architecture: Architecture,
    /// Every count of channels is a multiple of this.
    channel_multiple: usize,
    /// Rows and columns of the output, at least.
    min_extent: usize,
    /// Blocks of the launch, at least, counting the splits that pay for a large tile.
    min_blocks: usize,
}

/// What the conditions of a variant look at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Problem {
    /// Rows and columns of the output.
    pub extents: [usize; 2],
    /// Products of these extents.
    pub classes: usize,
    /// k-blocks of the reduction.
    pub k_blocks: usize,
    /// Every count of channels is a multiple of [`CHUNK`].
    pub aligned: bool,
}

/// A large tile pays off only if at most this many splits, of at least this many k-blocks, fill the
/// GPU: the partial sums of more splits would cost what the tile saves.
const LARGE_MAX_SPLITS: usize = 4;
const LARGE_MIN_K_BLOCKS: usize = 16;

/// 128x128 outputs per block.
const LARGE: Variant = Variant {
    kernel: "",
    tile: [128, 128],
    threads: THREADS,
    stages: 4,
    architecture: Architecture::COMPUTE_80,
    channel_multiple: CHUNK,
    min_extent: 65,
    min_blocks: 108,
};
/// 64x64 outputs per block.
const SMALL: Variant = Variant { tile: [64, 64], min_extent: 0, min_blocks: 0, ..LARGE };
/// 64x64 outputs per block, loaded value by value.
const UNALIGNED: Variant = Variant { channel_multiple: 1, ..SMALL };

/// `y = conv(x, w)`.
pub(super) const FORWARD: &[Variant] = &[
    Variant { kernel: "conv2d_f16_large", ..LARGE },
    Variant { kernel: "conv2d_f16_small", ..SMALL },
    Variant { kernel: "conv2d_f16_unaligned", ..UNALIGNED },
];

/// `y = conv(x, w)`, masked.
pub(super) const MASKED: &[Variant] = &[
    Variant { kernel: "conv2d_masked_f16_large", ..LARGE },
    Variant { kernel: "conv2d_masked_f16_small", ..SMALL },
    Variant { kernel: "conv2d_masked_f16_unaligned", ..UNALIGNED },
];

/// `y = conv(x, w)` with a residual at the nearest position.
pub(super) const NEAREST: &[Variant] = &[
    Variant { kernel: "conv2d_nearest_f16_large", ..LARGE },
    Variant { kernel: "conv2d_nearest_f16_small", ..SMALL },
    Variant { kernel: "conv2d_nearest_f16_unaligned", ..UNALIGNED },
];

/// The gradient of `x`.
pub(super) const GRAD_INPUT: &[Variant] = &[
    Variant { kernel: "conv2d_grad_input_f16_large", ..LARGE },
    Variant { kernel: "conv2d_grad_input_f16_small", ..SMALL },
    Variant { kernel: "conv2d_grad_input_f16_unaligned", ..UNALIGNED },
];

/// The gradient of `w`. Splits make the blocks that tiles do not: one large tile is enough.
pub(super) const GRAD_WEIGHT: &[Variant] = &[
    Variant { kernel: "conv2d_grad_weight_f16_large", min_blocks: 1, ..LARGE },
    Variant { kernel: "conv2d_grad_weight_f16_small", ..SMALL },
    Variant { kernel: "conv2d_grad_weight_f16_unaligned", ..UNALIGNED },
];

impl Variant {
    /// The first of a table that runs on the GPU and suits the problem. Panics if none does: each
    /// table ends with one that always does.
    pub(super) fn choose(table: &[Self], gpu: &Gpu, problem: &Problem) -> Self {
        let runs = |v: &&Self| v.architecture.runs_on(gpu.capability) && v.suits(problem);
        let found = table.iter().find(runs);
        *found.unwrap_or_else(|| panic!("no kernel for {problem:?} on {gpu:?}"))
    }

    fn suits(&self, p: &Problem) -> bool {
        let splits = (p.k_blocks / LARGE_MIN_K_BLOCKS).clamp(1, LARGE_MAX_SPLITS);
        (p.aligned || self.channel_multiple == 1)
            && p.extents.iter().all(|extent| *extent >= self.min_extent)
            && self.tiles(p.extents) * p.classes * splits >= self.min_blocks
    }

    /// Tiles that cover an output of these extents.
    pub(super) fn tiles(&self, [rows, columns]: [usize; 2]) -> usize {
        rows.div_ceil(self.tile[0]) * columns.div_ceil(self.tile[1])
    }

    /// Shared memory per block, in bytes: a ring of k-blocks of both operands, in half.
    fn shared_bytes(&self) -> usize {
        self.stages * (self.tile[0] + self.tile[1]) * DEPTH * size_of::<u16>()
    }

    /// A launch of this kernel, without arguments.
    pub(super) fn launch(&self, grid: [usize; 3]) -> Launch {
        Launch::new(self.kernel, grid).block(self.threads).shared(self.shared_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_ends_with_a_kernel_for_any_problem() {
        let worst = Problem { extents: [1, 1], classes: 1, k_blocks: 1, aligned: false };
        for table in [FORWARD, MASKED, NEAREST, GRAD_INPUT, GRAD_WEIGHT] {
            let [.., last] = table else { panic!("an empty table") };
            assert_eq!(Variant::choose(table, &Gpu::a100(), &worst), *last);
        }
    }

    #[test]
    fn a_variant_for_hopper_is_chosen_there_alone() {
        let hopper = Variant { architecture: Architecture::COMPUTE_90A, ..FORWARD[0] };
        let table = [Variant { kernel: "hopper", ..hopper }, FORWARD[0]];
        let large = Problem { extents: [12_000, 256], classes: 1, k_blocks: 72, aligned: true };
        let chosen = |gpu: &Gpu| Variant::choose(&table, gpu, &large).kernel;
        assert_eq!(chosen(&Gpu::h100()), "hopper");
        assert_eq!(chosen(&Gpu::a100()), "conv2d_f16_large");
    }

    /// The ring of every kernel fits the shared memory that a block can have on an A100.
    #[test]
    fn every_ring_fits() {
        for variant in [FORWARD, GRAD_INPUT, GRAD_WEIGHT].concat() {
            assert!(variant.shared_bytes() <= Gpu::a100().shared_bytes, "{variant:?}");
        }
    }
}
