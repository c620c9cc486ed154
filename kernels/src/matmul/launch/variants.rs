//! Tables of the kernels for each pass: of the kernels whose conditions are met, the cheapest one
//! is used.

use std::collections::BTreeSet;

use device::architecture::Architecture;
use device::{Gpu, Launch};

use super::CHUNK;
use crate::occupancy::Slots;

/// Values of the reduction in a k-block.
pub(crate) const DEPTH: usize = 32;
/// Maximum rows and columns of a filter for the aligned kernels, which store its taps as bits.
pub(super) const MAX_TAPS: usize = 14;
/// Threads per block.
const THREADS: u32 = 128;

/// One kernel for a pass, and its conditions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Variant {
    /// Name of the `extern "C"` kernel.
    pub kernel: &'static str,
    /// Rows and columns of the output that a block computes.
    pub tile: [usize; 2],
    /// Threads per block.
    threads: u32,
    /// Stages of the cp.async pipeline: k-blocks in shared memory at once.
    stages: usize,
    /// The minimum architecture.
    pub architecture: Architecture,
    /// All channel counts must be a multiple of this.
    channel_multiple: usize,
    /// Cycles per k-block with the maximum number of resident blocks, divided by that number.
    pub k_block_cycles: f64,
    /// Cycles of the rest of a block: address computation and the epilogue.
    pub block_cycles: f64,
}

/// The properties of a GEMM that the conditions of a variant depend on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Problem {
    /// Rows and columns of the output.
    pub extents: [usize; 2],
    /// Number of GEMMs of these extents.
    pub classes: usize,
    /// k-blocks of the reduction.
    pub k_blocks: usize,
    /// All channel counts are multiples of [`CHUNK`].
    pub aligned: bool,
}

/// 128x128 outputs per block: per k-block, 64 HMMAs of 8 cycles for each scheduler's warp, at 88 %
/// of the peak rate.
const LARGE: Variant = Variant {
    kernel: "",
    tile: [128, 128],
    threads: THREADS,
    stages: 4,
    architecture: Architecture::COMPUTE_80,
    channel_multiple: CHUNK,
    k_block_cycles: 580.0,
    block_cycles: 2500.0,
};
/// 64x64 outputs per block: per k-block, 16 HMMAs, at 70 % of the peak rate, as two thirds of the
/// cycles issue other instructions and each loaded value is used half as often.
const SMALL: Variant =
    Variant { tile: [64, 64], k_block_cycles: 183.0, block_cycles: 1100.0, ..LARGE };
/// 64x64 outputs per block, gathered element by element: bound by issuing about 750 instructions
/// per k-block.
const UNALIGNED: Variant = Variant { channel_multiple: 1, k_block_cycles: 800.0, ..SMALL };

/// On Hopper, 128x128 outputs per block by wgmma, two blocks per multiprocessor. These tiles are
/// bound by loading the operands from L2. The cycles were measured on an H200, where a 3x3
/// convolution with 256 channels on 12 maps of 200x336 reached 538 TFLOP/s.
const DEEP: Variant =
    Variant { stages: 6, architecture: Architecture::COMPUTE_90A, k_block_cycles: 460.0, ..LARGE };
/// `DEEP` with four stages, so that three blocks fit a multiprocessor.
const WIDE: Variant = Variant { stages: 4, ..DEEP };
/// Twice the rows of `DEEP`, by two warpgroups: three quarters of the bytes from L2, and 566
/// TFLOP/s for the convolution above. Only one block fits a multiprocessor, so its start and end
/// are not overlapped: `WIDE` tiles are faster up to some 20 k-blocks.
const TALL: Variant = Variant {
    tile: [256, 128],
    threads: 2 * THREADS,
    k_block_cycles: 800.0,
    block_cycles: 7500.0,
    ..DEEP
};
/// Tiles of 64 columns (`LOW`: of 64 rows), so that four blocks fit a multiprocessor.
const NARROW: Variant =
    Variant { tile: [128, 64], k_block_cycles: 360.0, block_cycles: 1500.0, ..WIDE };
const LOW: Variant = Variant { tile: [64, 128], ..NARROW };

/// `y = conv(x, w)`.
pub(super) const FORWARD: &[Variant] = &[
    Variant { kernel: "conv2d_f16_large", ..LARGE },
    Variant { kernel: "conv2d_f16_small", ..SMALL },
    Variant { kernel: "conv2d_f16_unaligned", ..UNALIGNED },
    Variant { kernel: "conv2d_f16_tall", ..TALL },
    Variant { kernel: "conv2d_f16_wide", ..WIDE },
    Variant { kernel: "conv2d_f16_narrow", ..NARROW },
];

/// The stem on images with four channels.
pub(super) const STEM: &[Variant] = &[
    Variant { kernel: "stem_f16_narrow", ..NARROW },
    Variant { kernel: "stem_f16_small", ..SMALL },
];
/// The end of a bottleneck, with its shortcut projection.
pub(super) const PROJECTED: &[Variant] = &[
    Variant { kernel: "projected_f16_large", ..LARGE },
    Variant { kernel: "projected_f16_small", ..SMALL },
    Variant { kernel: "projected_f16_tall", ..TALL },
    Variant { kernel: "projected_f16_wide", ..WIDE },
];
/// The RPN head: a forward pass whose blocks also compute the outputs of their rows.
pub(super) const RPN_HEAD: &[Variant] = &[
    Variant { kernel: "rpn_head_f16_tall", ..TALL },
    Variant { kernel: "rpn_head_f16_large", ..LARGE },
];
/// The RPN head with up to 64 channels.
pub(super) const RPN_HEAD_SMALL: &[Variant] = &[Variant { kernel: "rpn_head_f16_small", ..SMALL }];
/// `y = conv(x, w)`, masked.
pub(super) const MASKED: &[Variant] = &[
    Variant { kernel: "conv2d_masked_f16_large", ..LARGE },
    Variant { kernel: "conv2d_masked_f16_small", ..SMALL },
    Variant { kernel: "conv2d_masked_f16_unaligned", ..UNALIGNED },
    Variant { kernel: "conv2d_masked_f16_deep", ..DEEP },
];

/// `y = conv(x, w)` with a residual at the nearest position.
pub(super) const NEAREST: &[Variant] = &[
    Variant { kernel: "conv2d_nearest_f16_large", ..LARGE },
    Variant { kernel: "conv2d_nearest_f16_small", ..SMALL },
    Variant { kernel: "conv2d_nearest_f16_unaligned", ..UNALIGNED },
    Variant { kernel: "conv2d_nearest_f16_wide", ..WIDE },
];

/// The gradient of `x`.
pub(super) const GRAD_INPUT: &[Variant] = &[
    Variant { kernel: "conv2d_grad_input_f16_large", ..LARGE },
    Variant { kernel: "conv2d_grad_input_f16_small", ..SMALL },
    Variant { kernel: "conv2d_grad_input_f16_unaligned", ..UNALIGNED },
    Variant { kernel: "conv2d_grad_input_f16_tall", ..TALL },
    Variant { kernel: "conv2d_grad_input_f16_wide", ..WIDE },
    Variant { kernel: "conv2d_grad_input_f16_narrow", ..NARROW },
];

/// The gradient of `w`.
pub(super) const GRAD_WEIGHT: &[Variant] = &[
    Variant { kernel: "conv2d_grad_weight_f16_large", ..LARGE },
    Variant { kernel: "conv2d_grad_weight_f16_small", ..SMALL },
    Variant { kernel: "conv2d_grad_weight_f16_unaligned", ..UNALIGNED },
    Variant { kernel: "conv2d_grad_weight_f16_tall", ..TALL },
    Variant { kernel: "conv2d_grad_weight_f16_wide", ..WIDE },
    Variant { kernel: "conv2d_grad_weight_f16_narrow", ..NARROW },
    Variant { kernel: "conv2d_grad_weight_f16_low", ..LOW },
];

/// The gradients of convolutions whose output gradient is padded; they exist only with small tiles.
pub(super) const GRAD_INPUT_PADDED: &[Variant] =
    &[Variant { kernel: "conv2d_grad_input_f16_padded_small", ..SMALL }];
pub(super) const GRAD_WEIGHT_PADDED: &[Variant] =
    &[Variant { kernel: "conv2d_grad_weight_f16_padded_small", ..SMALL }];

/// The three passes of grouped and of dilated convolutions.
pub(super) const FORWARD_GROUPED: &[Variant] = &[
    Variant { kernel: "conv2d_grouped_f16_small", ..SMALL },
    Variant { kernel: "conv2d_grouped_f16_unaligned", ..UNALIGNED },
    Variant { kernel: "conv2d_grouped_f16_narrow", ..NARROW },
];
pub(super) const GRAD_INPUT_GROUPED: &[Variant] = &[
    Variant { kernel: "conv2d_grad_input_grouped_f16_small", ..SMALL },
    Variant { kernel: "conv2d_grad_input_grouped_f16_unaligned", ..UNALIGNED },
    Variant { kernel: "conv2d_grad_input_grouped_f16_narrow", ..NARROW },
];
pub(super) const GRAD_WEIGHT_GROUPED: &[Variant] = &[
    Variant { kernel: "conv2d_grad_weight_grouped_f16_small", ..SMALL },
    Variant { kernel: "conv2d_grad_weight_grouped_f16_unaligned", ..UNALIGNED },
    Variant { kernel: "conv2d_grad_weight_grouped_f16_low", ..LOW },
];

/// The properties of a kernel's tile for a cost model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Tile {
    rows: usize,
    pub columns: usize,
    /// Cycles per k-block in the cost model.
    pub k_block_cycles: f64,
    /// Cycles of the rest of a block.
    pub block_cycles: f64,
}

impl Tile {
    /// True for tiles of 64x64.
    pub(crate) fn is_small(&self) -> bool {
        self.rows.max(self.columns) < 128
    }

    /// FLOPs per k-block.
    pub(crate) fn flops(&self) -> f64 {
        (2 * self.rows * self.columns * DEPTH) as f64
    }

    /// Bytes per k-block loaded from L2: both operands, in half.
    pub(crate) fn operand_bytes(&self) -> f64 {
        ((self.rows + self.columns) * DEPTH * size_of::<u16>()) as f64
    }

    /// Shared-memory cycles per k-block, at 128 bytes per cycle: operands are written once and read
    /// twice, as each of four warps computes a quarter of the tile.
    pub(crate) fn shared_cycles(&self) -> f64 {
        3.0 * self.operand_bytes() / 128.0
    }
}

/// All GEMM kernels, some more than once.
fn variants() -> impl Iterator<Item = &'static Variant> {
    let tables = [FORWARD, STEM, PROJECTED, RPN_HEAD, RPN_HEAD_SMALL, MASKED, NEAREST];
    let tables = tables.into_iter().chain([GRAD_INPUT, GRAD_INPUT_PADDED]);
    let tables = tables.chain([GRAD_WEIGHT, GRAD_WEIGHT_PADDED]);
    let tables = tables.chain([FORWARD_GROUPED, GRAD_INPUT_GROUPED, GRAD_WEIGHT_GROUPED]);
    tables.flatten()
}

/// The names of all GEMM kernels.
pub(crate) fn gemm_kernels() -> BTreeSet<&'static str> {
    variants().map(|variant| variant.kernel).collect()
}

/// The tile of a GEMM kernel; `None` for other kernels.
pub(crate) fn tile_of(kernel: &str) -> Option<Tile> {
    let found = variants().find(|variant| variant.kernel == kernel)?;
    let Variant { tile: [rows, columns], k_block_cycles, block_cycles, .. } = *found;
    Some(Tile { rows, columns, k_block_cycles, block_cycles })
}

impl Variant {
    /// True if the GPU and the problem meet its conditions.
    pub(super) fn runs(&self, gpu: &Gpu, problem: &Problem) -> bool {
        gpu.runs(self.architecture) && (problem.aligned || self.channel_multiple == 1)
    }

    /// The blocks that the GPU runs at once.
    pub(super) fn slots(&self, gpu: &Gpu) -> Slots {
        Slots::of(gpu, &self.launch([1, 1, 1]))
    }

    /// Tiles that cover an output of these extents.
    pub(super) fn tiles(&self, [rows, columns]: [usize; 2]) -> usize {
        rows.div_ceil(self.tile[0]) * columns.div_ceil(self.tile[1])
    }

    /// Shared memory per block, in bytes: all stages of both operands, in half.
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

    /// The kernels' tiles match the tables.
    #[test]
    fn tile_table_matches_kernels() {
        let tile = |name, of, Variant { tile: [rows, columns], stages, .. }: Variant| {
            format!("using {name}Tile = {of}<{rows}, {columns}, {stages}")
        };
        let holds = |source: &str, texts: &[String]| {
            for text in texts {
                assert!(source.contains(text.as_str()), "no `{text}`");
            }
        };
        let named = [("Large", LARGE), ("Small", SMALL), ("Unaligned", UNALIGNED)];
        let mut tiles = named.map(|(name, variant)| tile(name, "Tile", variant)).to_vec();
        tiles.push(format!("static constexpr int DEPTH = {DEPTH};"));
        holds(include_str!("../../cuda/gemm/tile.cuh"), &tiles);
        let named =
            [("Tall", TALL), ("Deep", DEEP), ("Wide", WIDE), ("Narrow", NARROW), ("Low", LOW)];
        let mut tiles = named.map(|(name, variant)| tile(name, "WarpgroupTile", variant)).to_vec();
        tiles.push(format!("static constexpr int DEPTH = {DEPTH}, THREADS = {THREADS} * GROUPS;"));
        tiles.push("using TallTile = WarpgroupTile<256, 128, 6, 2>;".into());
        holds(include_str!("../../cuda/gemm/warpgroup.cuh"), &tiles);
    }

    #[test]
    fn every_variant_table_covers_any_shape() {
        let worst = Problem { extents: [1, 1], classes: 1, k_blocks: 1, aligned: false };
        let grouped = [FORWARD_GROUPED, GRAD_INPUT_GROUPED, GRAD_WEIGHT_GROUPED];
        let plain = [FORWARD, MASKED, NEAREST, GRAD_INPUT, GRAD_WEIGHT];
        for table in plain.into_iter().chain(grouped) {
            assert!(table.iter().any(|variant| variant.runs(&Gpu::a100(), &worst)));
        }
    }

    #[test]
    fn hopper_variant_runs_only_on_hopper() {
        let hopper = Variant { architecture: Architecture::COMPUTE_90A, ..FORWARD[0] };
        let large = Problem { extents: [12_000, 256], classes: 1, k_blocks: 72, aligned: true };
        assert!(hopper.runs(&Gpu::h100(), &large));
        assert!(!hopper.runs(&Gpu::a100(), &large));
    }

    /// Two large tiles and four small ones fit a multiprocessor, as in the manifest.
    #[test]
    fn variants_fit_expected_blocks_per_multiprocessor() {
        for gpu in [Gpu::a100(), Gpu::h100()] {
            for table in [FORWARD, PROJECTED, GRAD_INPUT, GRAD_WEIGHT] {
                assert_eq!([0, 1].map(|i: usize| table[i].slots(&gpu).blocks), [2, 4], "{gpu:?}");
            }
        }
        for (table, blocks) in [
            (FORWARD, &[1, 3, 4][..]),
            (PROJECTED, &[1, 3]),
            (GRAD_INPUT, &[1, 3, 4]),
            (GRAD_WEIGHT, &[1, 3, 4, 4]),
            (MASKED, &[2]),
            (NEAREST, &[3]),
        ] {
            let hopper = table.iter().filter(|v| v.architecture == Architecture::COMPUTE_90A);
            let hopper = hopper.map(|variant| variant.slots(&Gpu::h100()).blocks);
            assert_eq!(hopper.collect::<Vec<usize>>(), blocks);
        }
    }

    /// The stages of every kernel fit the shared memory of a block.
    #[test]
    fn every_pipeline_fits_shared_memory() {
        for variant in [FORWARD, GRAD_INPUT, GRAD_WEIGHT].concat() {
            let gpu = [Gpu::a100(), Gpu::h100()]
                .into_iter()
                .find(|gpu| variant.architecture.runs_on(gpu.capability));
            let gpu = gpu.expect("a GPU that runs it");
            assert!(variant.shared_bytes() <= gpu.shared_bytes, "{variant:?}");
        }
    }
}
