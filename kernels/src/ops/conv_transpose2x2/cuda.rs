//! CUDA launches of `conv_transpose2x2` and its gradients: those of the 2x2 convolution of stride 2
//! whose gradient it is. Each residue class of its input's gradient is one of the four products
//! `x * w[:, a, b]`, written to every second row and column of `y`.

use device::{Gpu, Launch, LaunchArgs};

use super::{ConvTranspose2x2Inputs, conv_shape, extents};
use crate::matmul::ConvShape;
use crate::matmul::launch::{self, Extras};
use crate::{Finish, TensorDesc};

/// The convolution for the tensor of H x W and the one of 2H x 2W.
fn shape(small: &TensorDesc, large: &TensorDesc) -> ConvShape {
    conv_shape(extents(small), large.dim(3))
}

pub(super) fn workspace_bytes(gpu: &Gpu, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> usize {
    launch::grad_input_workspace_bytes(gpu, &shape(&inputs[0], &outputs[0]), false)
}

pub(super) fn launches(relu: bool, counted: bool, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let y = args.outputs[0];
    let ConvTranspose2x2Inputs { x, w, b, count } =
        ConvTranspose2x2Inputs::of(&args.inputs, [counted]);
    let extras = Extras { bias: Some(*b), relu, count: count.copied(), ..Extras::default() };
    launch::grad_input(args, &shape(x.desc, y.desc), [*x, *w, y], extras)
}

pub(super) fn grad_input_workspace_bytes(
    gpu: &Gpu,
    inputs: &[TensorDesc],
    outputs: &[TensorDesc],
) -> usize {
    launch::forward_workspace_bytes(gpu, &shape(&outputs[0], &inputs[0]))
}

pub(super) fn grad_input(counted: bool, finish: Finish, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let ([g, w], dx) = ([0, 1].map(|i| args.inputs[i]), args.outputs[0]);
    let extras = launch::finished(args, counted, finish);
    launch::forward(args, &shape(dx.desc, g.desc), [g, w, dx], extras)
}

pub(super) fn grad_weight_workspace_bytes(gpu: &Gpu, inputs: &[TensorDesc]) -> usize {
    launch::grad_weight_workspace_bytes(gpu, &shape(&inputs[0], &inputs[1]), false)
}

pub(super) fn grad_weight(counted: bool, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let ([x, g], dw) = ([0, 1].map(|i| args.inputs[i]), args.outputs[0]);
    let extras = launch::counted(args, counted);
    launch::grad_weight(args, &shape(x.desc, g.desc), [g, x, dw], extras)
}
