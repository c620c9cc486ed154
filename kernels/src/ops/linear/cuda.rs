//! CUDA launches of `linear` and its gradients: those of a 1x1 convolution of images of one pixel,
//! a row each, so that a count of rows is a count of images.

use super::{LinearInputs, row_len};
use crate::TensorDesc;
use crate::device::gemm::{self, Extras};
use crate::device::{Launch, LaunchArgs};
use crate::matmul::ConvShape;

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

pub(super) fn workspace_bytes(inputs: &[TensorDesc]) -> usize {
    gemm::forward_workspace_bytes(&forward_shape(&inputs[0], &inputs[1]))
}

pub(super) fn launches(relu: bool, counted: bool, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let LinearInputs { x, w, b, count } = LinearInputs::of(&args.inputs, [counted]);
    let extras = Extras { bias: Some(*b), relu, count: count.copied(), ..Extras::default() };
    let shape = forward_shape(x.desc, w.desc);
    gemm::forward(&shape, [*x, *w, args.outputs[0]], extras, &args.workspace)
}

pub(super) fn grad_input_workspace_bytes(inputs: &[TensorDesc]) -> usize {
    gemm::grad_input_workspace_bytes(&grad_input_shape(&inputs[0], &inputs[1]), false)
}

pub(super) fn grad_input(counted: bool, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let [g, w] = [0, 1].map(|i| args.inputs[i]);
    let shape = grad_input_shape(g.desc, w.desc);
    let tensors = [g, w, args.outputs[0]];
    gemm::grad_input(&shape, tensors, gemm::counted(args, counted), &args.workspace)
}

pub(super) fn grad_weight_workspace_bytes(inputs: &[TensorDesc]) -> usize {
    gemm::grad_weight_workspace_bytes(&grad_weight_shape(&inputs[0], &inputs[1]))
}

pub(super) fn grad_weight(counted: bool, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let [x, g] = [0, 1].map(|i| args.inputs[i]);
    let shape = grad_weight_shape(x.desc, g.desc);
    let tensors = [x, g, args.outputs[0]];
    gemm::grad_weight(&shape, tensors, gemm::counted(args, counted), &args.workspace)
}
