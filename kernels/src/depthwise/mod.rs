//! Depthwise convolutions: one filter per channel, without a GEMM.

mod cpu;
mod cuda;

use crate::matmul::ConvShape;

pub(crate) use cpu::{convolve_on_cpu, grad_weight_on_cpu};
pub(crate) use cuda::{convolve, grad_weight, grad_weight_workspace_bytes, runs};

/// True if each channel has its own filter, and the output has the size of the input.
pub(crate) fn is_depthwise(s: &ConvShape) -> bool {
    let same = s.out_height == s.height && s.out_width == s.width;
    let plain = s.stride == 1 && s.dilation == 1 && same;
    plain && s.groups > 1 && s.groups == s.channels && s.groups == s.filters
}
