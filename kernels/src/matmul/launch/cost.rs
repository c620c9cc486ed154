//! The cost model of a plan: waves of blocks, and partial sums.
//!
//! It compares plans of one GEMM, so only the ratios of its numbers matter. The numbers are from
//! counts of machine instructions, from published bandwidths, and on Hopper from measurements on an
//! H200.

use device::Gpu;

use super::variants::{Problem, Variant};

/// Cycles until the kernel that sums the splits starts.
const REDUCE_CYCLES: f64 = 4000.0;
/// Bytes per cycle that a multiprocessor moves to and from L2 and memory.
const L2_BYTES_PER_CYCLE: f64 = 32.0;
const MEMORY_BYTES_PER_CYCLE: f64 = 12.0;

/// Cycles of a GEMM with `len` outputs in `splits` splits.
pub(super) fn cycles(
    gpu: &Gpu,
    variant: &Variant,
    problem: &Problem,
    splits: usize,
    len: usize,
) -> f64 {
    let blocks = variant.tiles(problem.extents) * problem.classes * splits;
    let k_blocks = problem.k_blocks.div_ceil(splits) as f64;
    let block = k_blocks * variant.k_block_cycles + variant.block_cycles;
    let product = variant.slots(gpu).time(blocks) * block;
    if splits == 1 {
        return product;
    }
    let partial_bytes = splits * len * 4;
    let per_cycle =
        if partial_bytes <= gpu.l2_bytes / 2 { L2_BYTES_PER_CYCLE } else { MEMORY_BYTES_PER_CYCLE };
    // Each partial sum is written once and read once.
    let traffic = 2.0 * partial_bytes as f64 / (per_cycle * gpu.multiprocessors as f64);
    product + REDUCE_CYCLES + traffic
}
