//! CUDA launches of `linear` and its gradients: those of a 1x1 convolution of images of one pixel,
//! a row each, so that a count of rows is a count of images.

use device::{Gpu, Launch, LaunchArgs};

use super::{LinearInputs, row_len};
use crate::matmul::ConvShape;
use crate::matmul::launch::{self, Extras};
use crate::{Finish, TensorDesc};

/// The convolution for rows of `x` and weights `w`.
fn pixels(rows: usize, row_len: usize, filters: usize) -> ConvShape {
    ConvShape { images: rows, width: 1, out_width: 1, ..ConvShape::matrix(1, row_len, filters) }
}

fn forward_shape(x: &TensorDesc, w: &TensorDesc) -> ConvShape {
    pixels(x.dim(0), row_len(x), w.dim(0))
}

fn grad_input_shape(g: &TensorDesc, w: &TensorDesc) -> ConvShape {
    pixels(g.dim(0), row_len(w), w.dim(0))
}

fn grad_weight_shape(x: &TensorDesc, g: &TensorDesc) -> ConvShape {
    pixels(x.dim(0), row_len(x), g.dim(1))
}

pub(super) fn workspace_bytes(gpu: &Gpu, inputs: &[TensorDesc]) -> usize {
    launch::forward_workspace_bytes(gpu, &forward_shape(&inputs[0], &inputs[1]))
}

pub(super) fn launches(relu: bool, counted: bool, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let LinearInputs { x, w, b, count } = LinearInputs::of(&args.inputs, [counted]);
    let extras = Extras { bias: Some(*b), relu, count: count.copied(), ..Extras::default() };
    let shape = forward_shape(x.desc, w.desc);
    launch::forward(args, &shape, [*x, *w, args.outputs[0]], extras)
}

pub(super) fn grad_input_workspace_bytes(gpu: &Gpu, inputs: &[TensorDesc]) -> usize {
    launch::grad_input_workspace_bytes(gpu, &grad_input_shape(&inputs[0], &inputs[1]), false)
}

pub(super) fn grad_input(counted: bool, finish: Finish, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let [g, w] = [0, 1].map(|i| args.inputs[i]);
    let shape = grad_input_shape(g.desc, w.desc);
    let tensors = [g, w, args.outputs[0]];
    launch::grad_input(args, &shape, tensors, launch::finished(args, counted, finish))
}

pub(super) fn grad_weight_workspace_bytes(
    gpu: &Gpu,
    inputs: &[TensorDesc],
    bias_grad: bool,
) -> usize {
    let shape = grad_weight_shape(&inputs[0], &inputs[1]);
    launch::grad_weight_workspace_bytes(gpu, &shape, bias_grad)
}

pub(super) fn grad_weight(counted: bool, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let [x, g] = [0, 1].map(|i| args.inputs[i]);
    let shape = grad_weight_shape(x.desc, g.desc);
    let tensors = [x, g, args.outputs[0]];
    let bias_grad = args.outputs.get(1).copied();
    let extras = Extras { bias_grad, ..launch::counted(args, counted) };
    launch::grad_weight(args, &shape, tensors, extras)
}
