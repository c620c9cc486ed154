//! Cases of `mean_logits` for the table of ops.

use super::MeanLogits;
use crate::Role;
use crate::case::{OpCase, uniform};

/// No row, one, one class, primes, a block's rows and one more, and the proposals of an image.
pub fn cases() -> Vec<OpCase> {
    [([0, 3], 2), ([1, 1], 2), ([5, 7], 3), ([9, 33], 2), ([1000, 81], 3)]
        .iter()
        .map(|(shape, stages)| {
            let inputs = (0..*stages)
                .map(|stage| uniform(Role::Activation, shape, stage, -6.0, 6.0))
                .collect();
            OpCase::new(format!("{shape:?}, {stages} stages"), MeanLogits, inputs)
        })
        .collect()
}
