//! Test and benchmark cases of `bias_grad`, a backward op without a gradient.

use super::BiasGrad;
use crate::Role;
use crate::case::{OpCase, integers, normal};

/// No rows, one row, prime sizes, row counts near the block size, a map of a training step, widths
/// above one tile, and fp32 gradients.
pub fn cases() -> Vec<OpCase> {
    let shapes: [&[usize]; 7] =
        [&[0, 3], &[1, 1], &[5, 7, 11], &[511, 13], &[512, 13], &[513, 13], &[2, 25, 42, 256]];
    let more: [(Role, &[usize]); 4] = [
        (Role::Gradient, &[131, 272]),
        (Role::Gradient, &[67, 37]),
        (Role::Score, &[513, 13]),
        (Role::Score, &[131, 16]),
    ];
    shapes
        .iter()
        .map(|shape| (Role::Gradient, *shape))
        .chain(more)
        .flat_map(|(role, shape)| [false, true].map(|counted| (role, shape, counted)))
        .map(|(role, shape, counted)| {
            let mut inputs = vec![normal(role, shape, 1, 1.0)];
            if counted {
                inputs.push(integers(&[1], 2, 0, shape[0] as i32 + 2));
            }
            OpCase::new(format!("{role:?}{shape:?} {counted}"), BiasGrad { counted }, inputs)
        })
        .collect()
}
