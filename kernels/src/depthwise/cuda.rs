//! CUDA launches of depthwise 7x7 convolutions, without tensor cores.

use device::{Access, Buffer, Launch, LaunchArgs};

use super::is_depthwise;
use crate::column_sums::Chunks;
use crate::matmul::ConvShape;
use crate::matmul::launch::{check_reals, conv_arg, read};

/// Side of the filters; as in `conv2d_depthwise.cu`.
const SIDE: usize = 7;
/// Channels per block.
const CHANNELS: usize = 64;
/// Minimum rows per chunk of the filter gradient, and the maximum number of chunks.
const MIN_CHUNK: usize = 4;
const MAX_CHUNKS: usize = 512;

/// True if the kernels support this convolution.
pub(crate) fn runs(s: &ConvShape) -> bool {
    is_depthwise(s) && [s.kernel_h, s.kernel_w] == [SIDE; 2] && s.channels.is_multiple_of(2)
}

/// `y = conv(x, w) + bias`. If `turned`, the input gradient: `x` is the output's gradient, `y` the
/// input's.
pub(crate) fn convolve(
    s: &ConvShape,
    [x, w, y]: [Buffer<'_>; 3],
    bias: Option<Buffer<'_>>,
    turned: bool,
) -> Vec<Launch> {
    check_reals(&[x, w, y]);
    let grid = [s.images * s.height, s.channels.div_ceil(CHANNELS), 1];
    vec![
        Launch::new("conv2d_depthwise_f16", grid)
            .reads([x, w])
            .arg(read(bias))
            .arg(y.write())
            .arg(conv_arg(&plain(s)))
            .arg(turned),
    ]
}

/// The sizes without groups, for the kernels' `struct Conv`.
fn plain(s: &ConvShape) -> ConvShape {
    ConvShape { groups: 1, ..*s }
}

/// Map rows per chunk, and the number of chunks.
fn chunks(s: &ConvShape) -> (usize, usize) {
    let rows = s.images * s.height;
    let chunk = rows.div_ceil(MAX_CHUNKS).max(MIN_CHUNK);
    (chunk, rows.div_ceil(chunk))
}

/// The sums of all chunks, as a matrix.
fn sums(s: &ConvShape) -> Chunks {
    Chunks::of_sums(chunks(s).1, s.channels * SIDE * SIDE)
}

/// Scratch bytes of [`grad_weight`].
pub(crate) fn grad_weight_workspace_bytes(s: &ConvShape) -> usize {
    sums(s).bytes()
}

/// Filter gradient: reads `x` and `g`, writes `dw`, in f32.
pub(crate) fn grad_weight(
    args: &LaunchArgs<'_>,
    s: &ConvShape,
    [x, g, dw]: [Buffer<'_>; 3],
) -> Vec<Launch> {
    check_reals(&[x, g]);
    let ((chunk, chunks), sums) = (chunks(s), sums(s));
    let partial = |access| args.workspace.piece(0, sums.bytes(), access);
    let products =
        Launch::new("conv2d_depthwise_grad_weight_f16", [chunks, s.channels.div_ceil(CHANNELS), 1])
            .block(7 * 32)
            .reads([x, g])
            .arg(partial(Access::Write))
            .arg(conv_arg(&plain(s)))
            .int(chunk);
    vec![products, sums.total(partial(Access::Read), dw)]
}
