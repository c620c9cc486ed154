//! Test and benchmark cases of `sum`.

use super::Sum;
use crate::Role;
use crate::case::{OpCase, normal};

/// Sizes 0, 1, prime numbers and near the block size, and a C5 map of a training step; weight
/// gradients, and more terms than one CUDA launch adds.
pub fn cases() -> Vec<OpCase> {
    let shapes: [&[usize]; 6] = [&[0], &[1], &[5, 7, 11], &[16383], &[16385], &[2, 25, 42, 256]];
    // A full vector of eight elements, and a tail of seven.
    let tail: &[usize] = &[15];
    shapes
        .iter()
        .flat_map(|shape| [1, 2, 3].map(|n| (Role::Gradient, shape, n)))
        .chain([
            (Role::WeightGradient, &shapes[2], 5),
            (Role::Gradient, &shapes[2], 33),
            (Role::WeightGradient, &shapes[2], 67),
            (Role::Gradient, &tail, 1),
            (Role::Gradient, &tail, 4),
            (Role::Gradient, &tail, 71),
        ])
        .map(|(role, shape, n)| {
            let inputs = (0..n).map(|i| normal(role, shape, i, 1.0)).collect();
            OpCase::new(format!("{n} of {shape:?}"), Sum, inputs).grad(&[0])
        })
        .collect()
}
