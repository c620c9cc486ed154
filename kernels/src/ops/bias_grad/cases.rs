//! Cases of `bias_grad` for the table of ops. It is a backward op and has no gradient of its own.

use std::sync::Arc;

use super::BiasGrad;
use crate::case::{OpCase, integers, normal};
use crate::{Role, TensorDesc};

/// No rows, one, primes, a block of rows and its neighbours, and a map of a training step.
pub fn cases() -> Vec<OpCase> {
    let shapes: [&[usize]; 7] =
        [&[0, 3], &[1, 1], &[5, 7, 11], &[511, 13], &[512, 13], &[513, 13], &[2, 25, 42, 256]];
    shapes
        .iter()
        .flat_map(|shape| [false, true].map(|counted| (shape, counted)))
        .map(|(shape, counted)| {
            let mut inputs = vec![normal(&TensorDesc::new(Role::Gradient, shape), 1, 1.0)];
            if counted {
                inputs.push(integers(&[1], 2, 0, shape[0] as i32 + 2));
            }
            OpCase::new(format!("{shape:?} {counted}"), Arc::new(BiasGrad { counted }), inputs)
        })
        .collect()
}
