//! Cases of `decide_flips` for the table of ops.

use std::sync::Arc;

use super::DecideFlips;
use crate::case::OpCase;
use crate::case::boxes::image_keys;

/// Batches of no, one and some images, and of a large step.
pub fn cases() -> Vec<OpCase> {
    [0, 1, 5, 96]
        .map(|n| {
            let op = DecideFlips { seed: 42, probability: 0.5 };
            OpCase::new(format!("{n} images"), Arc::new(op), vec![image_keys(n)])
        })
        .to_vec()
}
