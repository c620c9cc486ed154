//! CUDA launches of `stem`: its filters laid out as rows of the window lie in memory, and the
//! product.

use device::{Access, Launch, LaunchArgs};

use super::{KERNEL, STORED_CHANNELS, StemInputs};
use crate::TensorDesc;
use crate::matmul::ConvShape;
use crate::matmul::launch;

/// Pixels of a row of the window: one before it, so that the first is an even one.
const PIXELS: usize = KERNEL + 1;
/// Values of a row of the window in memory; as in `gemm/stem.cuh`.
const ROW: usize = PIXELS * STORED_CHANNELS;

/// Bytes of the filters as the product reads them.
pub(super) fn workspace_bytes(w: &TensorDesc) -> usize {
    w.dim(0) * KERNEL * ROW * size_of::<u16>()
}

pub(super) fn launches(shape: &ConvShape, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let StemInputs { x, w, scale, bias } = StemInputs::of(&args.inputs);
    let filters = |access| args.workspace.piece(0, workspace_bytes(w.desc), access);
    let arrange = Launch::over("stem_filters_f16", shape.filters * KERNEL * ROW)
        .arg(w.read())
        .arg(filters(Access::Write))
        .int(shape.filters);
    // To the product a row of the window is one tap of ROW channels.
    let rows = ConvShape { channels: ROW, kernel_w: 1, ..*shape };
    let product = launch::stem(args.gpu, &rows)
        .arg(x.read())
        .arg(filters(Access::Read))
        .arg(scale.read())
        .arg(bias.read())
        .arg(args.outputs[0].write())
        .arg(launch::conv_arg(&rows));
    vec![arrange, product]
}
