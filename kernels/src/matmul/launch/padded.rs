//! Gradients whose rows are not whole chunks are copied with padded rows, which kernels read in
//! chunks. Cost: the gradient is read and written once more; as it has few columns, this is little
//! compared with a GEMM that gathers element by element.

use device::{Access, Arg, Buffer, Gpu, Launch, LaunchArgs, Precision};

use super::CHUNK;
use super::variants::MAX_TAPS;
use crate::matmul::ConvShape;

/// True if kernels run on a padded copy of the gradient `[N,P,Q,K]`.
pub(super) fn is_padded(gpu: &Gpu, s: &ConvShape) -> bool {
    // Kernels of precisions other than fp16 always gather element by element.
    let in_chunks = gpu.precision == Precision::Fp16;
    let has_bits = s.kernel_h.max(s.kernel_w) <= MAX_TAPS;
    let plain = in_chunks && !s.is_grouped();
    plain && s.channels.is_multiple_of(CHUNK) && !s.filters.is_multiple_of(CHUNK) && has_bits
}

/// Bytes of the copy.
fn copy_bytes(s: &ConvShape) -> usize {
    s.out_positions() * s.filters.next_multiple_of(CHUNK) * size_of::<u16>()
}

/// Scratch of the copy, 0 if there is none.
pub(super) fn workspace_bytes(gpu: &Gpu, s: &ConvShape) -> usize {
    if is_padded(gpu, s) { copy_bytes(s).next_multiple_of(256) } else { 0 }
}

/// The padded copy that the GEMMs read in place of `g`, and the launch that writes it, at `offset`
/// of the workspace.
pub(super) fn gradient(
    args: &LaunchArgs<'_>,
    s: &ConvShape,
    g: Buffer<'_>,
    offset: usize,
) -> (Arg, Option<Launch>) {
    if !is_padded(args.gpu, s) {
        return (g.read(), None);
    }
    let copy = |access| args.workspace.piece(offset, copy_bytes(s), access);
    let (rows, chunks) = (s.out_positions(), s.filters.div_ceil(CHUNK));
    let launch = Launch::over("conv2d_pad_columns_f16", rows * chunks)
        .arg(g.read())
        .arg(copy(Access::Write))
        .int(rows)
        .int(s.filters);
    (copy(Access::Read), Some(launch))
}
