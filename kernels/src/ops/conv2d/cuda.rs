//! CUDA launches of `conv2d` and its gradients.

use device::{Launch, LaunchArgs};

use super::{Conv2d, Conv2dInputs};
use crate::Finish;
use crate::matmul::ConvShape;
use crate::matmul::launch::{self, Extras};

pub(super) fn launches(op: &Conv2d, shape: &ConvShape, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let inputs = Conv2dInputs::of(&args.inputs, op.optional());
    let extras = Extras {
        scale: inputs.scale.copied(),
        bias: inputs.bias.copied(),
        residual: inputs.residual.copied(),
        nearest: inputs.residual.filter(|_| op.nearest).map(|map| [map.dim(1), map.dim(2)]),
        relu: op.relu,
        signs: args.outputs.get(1).copied(),
        count: inputs.count.copied(),
        ..Extras::default()
    };
    let tensors = [*inputs.x, *inputs.w, args.outputs[0]];
    launch::forward(args, shape, tensors, extras)
}

pub(super) fn grad_input(
    has_scale: bool,
    counted: bool,
    finish: Finish,
    shape: &ConvShape,
    args: &LaunchArgs<'_>,
) -> Vec<Launch> {
    let scale = has_scale.then(|| args.inputs[2]);
    let extras = Extras { scale, ..launch::finished(args, counted, finish) };
    let tensors = [args.inputs[0], args.inputs[1], args.outputs[0]];
    launch::grad_input(args, shape, tensors, extras)
}

pub(super) fn grad_weight(
    has_scale: bool,
    counted: bool,
    shape: &ConvShape,
    args: &LaunchArgs<'_>,
) -> Vec<Launch> {
    let scale = has_scale.then(|| args.inputs[2]);
    let bias_grad = args.outputs.get(1).copied();
    let extras = Extras { scale, bias_grad, ..launch::counted(args, counted) };
    let tensors = [args.inputs[0], args.inputs[1], args.outputs[0]];
    launch::grad_weight(args, shape, tensors, extras)
}
