//! Test and benchmark cases of `relu_mask`, a backward op without a gradient.

use super::ReluMask;
use crate::Role;
use crate::case::{OpCase, floats, normal};
use crate::cpu::HostTensor;

/// Sizes 0, 1, prime numbers and near the block size, and a C5 map of a training step.
pub fn cases() -> Vec<OpCase> {
    let shapes: [&[usize]; 6] = [&[0], &[1], &[5, 7, 11], &[16383], &[16385], &[2, 25, 42, 256]];
    shapes
        .iter()
        .map(|shape| {
            let dy = normal(Role::Gradient, shape, 1, 1.0);
            let y = normal(Role::Activation, shape, 2, 1.0);
            OpCase::new(format!("{shape:?}"), ReluMask, vec![dy, y])
        })
        .collect()
}

/// Biases that keep the standard normal sums of a channel on one side of 0, so that finite
/// differences of an op with a fused ReLU do not cross 0: the ReLU passes even channels and blocks
/// odd channels.
pub(crate) fn one_sided(channels: usize) -> HostTensor {
    let values: Vec<f32> = (0..channels).map(|c| if c % 2 == 0 { 16.0 } else { -16.0 }).collect();
    floats(Role::Master, &[channels], values)
}
