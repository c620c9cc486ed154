//! Test and benchmark cases of `scalar_product`.

use super::ScalarProduct;
use crate::Role;
use crate::case::{OpCase, floats};

/// A loss scale and a weight, zero, a result that rounds, and one that overflows.
pub fn cases() -> Vec<OpCase> {
    [(65536.0, 1.5), (1024.0, 0.0), (0.1, 0.3), (3e38, 10.0)]
        .into_iter()
        .map(|(a, b)| {
            let scalar = |v| floats(Role::Scalar, &[1], [v]);
            OpCase::new(format!("{a} * {b}"), ScalarProduct, vec![scalar(a), scalar(b)])
        })
        .collect()
}
