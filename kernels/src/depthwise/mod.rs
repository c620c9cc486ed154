//! Convolutions with a group for each channel: a filter each, and no matrix product.

mod cpu;
mod cuda;

use crate::matmul::ConvShape;

pub(crate) use cpu::{convolve_on_cpu, grad_weight_on_cpu};
pub(crate) use cuda::{convolve, grad_weight, grad_weight_workspace_bytes, runs};

/// True if each channel has a filter of its own, and the output the size of the input.
pub(crate) fn is_depthwise(s: &ConvShape) -> bool {
    let same = s.out_height == s.height && s.out_width == s.width;
    let plain = s.stride == 1 && s.dilation == 1 && same;
    plain && s.groups > 1 && s.groups == s.channels && s.groups == s.filters
}
