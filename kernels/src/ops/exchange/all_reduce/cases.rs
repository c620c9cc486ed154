//! Test and benchmark cases of `all_reduce` on one rank, where the output equals the input.

use super::AllReduce;
use crate::Role;
use crate::case::{OpCase, normal};

/// Elements of fp16 and fp32; sizes 0, 1, prime numbers, and a bucket of 1 MiB.
pub fn cases() -> Vec<OpCase> {
    let shapes: [&[usize]; 4] = [&[0], &[1], &[5, 7, 11], &[1 << 19]];
    [Role::Gradient, Role::Loss, Role::Scalar]
        .into_iter()
        .flat_map(|role| shapes.map(|shape| (role, shape)))
        .map(|(role, shape)| {
            let x = normal(role, shape, 3, 1.0);
            OpCase::new(format!("{role:?} {shape:?}"), AllReduce, vec![x])
        })
        .collect()
}
