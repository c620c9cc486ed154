//! Cases of `all_reduce` for the table of ops: one rank, where the sum is its own input.

use super::AllReduce;
use crate::Role;
use crate::case::{OpCase, normal};

/// Halves and floats: sizes 0, 1, primes, and a bucket of 1 MiB.
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
