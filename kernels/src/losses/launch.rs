//! Kernel arguments shared by the losses, and the sizes of their launches.
//!
//! The structs equal those of `cuda/losses.cuh`.

use device::{Arg, Buffer, StructArg};

use crate::DType;

/// Threads per block of the kernels that process rows.
pub(crate) const ROW_THREADS: u32 = 1024;

/// Maximum number of blocks. Every block counts the rows of all groups of images, so more than one
/// block per multiprocessor (A100: 108, H100: 132) would repeat the count without gaining
/// parallelism.
pub(crate) const MAX_BLOCKS: usize = 128;

/// The incoming gradient of a loss, `LossGradient` in the kernels: a loss scale is f32, a gradient
/// computed by ops has the precision's type.
pub(crate) fn loss_gradient(grad_output: Buffer<'_>) -> Arg {
    let (wide, narrow) = match grad_output.dtype() {
        DType::F16 => (Arg::Null, grad_output.read()),
        _ => (grad_output.read(), Arg::Null),
    };
    StructArg::new().pointers([wide, narrow], 2).arg()
}

/// Blocks for `rows` rows if a block processes `rows_a_block` at a time: at least one, since the
/// loss is written even if there are no rows.
pub(crate) fn blocks(rows: usize, rows_a_block: usize) -> usize {
    rows.div_ceil(rows_a_block).clamp(1, MAX_BLOCKS)
}

/// Scratch bytes of the partial sums of `blocks` blocks.
pub(crate) fn partial_bytes(blocks: usize) -> usize {
    blocks * size_of::<f32>()
}
