//! Cases of `grad_norms` for the table of ops.

use std::sync::Arc;

use super::GradNorms;
use crate::case::{OpCase, normal};
use crate::{Role, TensorDesc};

/// Sizes 0, 1, primes, a chunk and its neighbours, and weights of a res4 block.
pub fn cases() -> Vec<OpCase> {
    let lists: [&[&[usize]]; 4] = [
        &[&[0]],
        &[&[1], &[5, 7, 11], &[13]],
        &[&[16383], &[16384], &[16385]],
        &[&[256, 1, 1, 1024], &[256, 3, 3, 256], &[1024, 1, 1, 256]],
    ];
    lists
        .iter()
        .map(|shapes| {
            let grad = |(i, s): (usize, &&[usize])| {
                normal(&TensorDesc::new(Role::WeightGradient, s), i as u32, 1e-3)
            };
            let inputs = shapes.iter().enumerate().map(grad).collect();
            OpCase::new(format!("{shapes:?}"), Arc::new(GradNorms {}), inputs)
        })
        .collect()
}
