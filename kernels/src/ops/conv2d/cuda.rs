//! CUDA launches of `conv2d` and its gradients.

use super::{Conv2d, Conv2dGradInput, Conv2dGradWeight};
use crate::device::gemm::{self, Extras};
use crate::device::{Launch, LaunchArgs};
use crate::matmul::ConvShape;

pub(super) fn launches(op: &Conv2d, shape: &ConvShape, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let optional = op.optional_inputs();
    let input = |place: Option<usize>| place.map(|i| args.inputs[i]);
    let extras = Extras {
        scale: input(optional.scale),
        bias: input(optional.bias),
        residual: input(optional.residual),
        relu: op.relu,
        count: input(optional.count),
    };
    let tensors = [args.inputs[0], args.inputs[1], args.outputs[0]];
    gemm::forward(shape, tensors, extras, &args.workspace)
}

pub(super) fn grad_input(
    op: &Conv2dGradInput,
    shape: &ConvShape,
    args: &LaunchArgs<'_>,
) -> Vec<Launch> {
    let scale = op.scale.then(|| args.inputs[2]);
    let extras = Extras { scale, ..gemm::counted(args, op.counted) };
    let tensors = [args.inputs[0], args.inputs[1], args.outputs[0]];
    gemm::grad_input(shape, tensors, extras, &args.workspace)
}

pub(super) fn grad_weight(
    op: &Conv2dGradWeight,
    shape: &ConvShape,
    args: &LaunchArgs<'_>,
) -> Vec<Launch> {
    let scale = op.scale.then(|| args.inputs[2]);
    let extras = Extras { scale, ..gemm::counted(args, op.counted) };
    let tensors = [args.inputs[0], args.inputs[1], args.outputs[0]];
    gemm::grad_weight(shape, tensors, extras, &args.workspace)
}
