//! Cases of `fold_norm` for the table of ops.

use super::FoldNorm;
use crate::Role;
use crate::case::{OpCase, normal, uniform};

/// No filters, filters without values, one number, primes, a block and its neighbours, and a
/// convolution of a head.
pub fn cases() -> Vec<OpCase> {
    let shapes: [&[usize]; 8] = [
        &[0, 3],
        &[3, 0],
        &[1, 1],
        &[5, 3, 3, 7],
        &[13, 255],
        &[2, 256],
        &[3, 257],
        &[64, 3, 3, 64],
    ];
    shapes.into_iter().map(case).collect()
}

fn case(shape: &[usize]) -> OpCase {
    let vector = |seed, low, high| uniform(Role::Master, &shape[..1], seed, low, high);
    let inputs = vec![
        normal(Role::Weight, shape, 1, 0.5),
        vector(2, -1.5, 1.5),
        vector(3, -1.0, 1.0),
        vector(4, -1.0, 1.0),
        vector(5, 0.5, 2.0),
    ];
    OpCase::new(format!("{shape:?}"), FoldNorm { eps: 1e-5 }, inputs)
        .grad(&[0, 1, 2])
        .through_masters()
}
