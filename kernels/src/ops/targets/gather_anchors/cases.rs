//! Test and benchmark cases of `gather_anchors`.

use super::GatherAnchors;
use crate::case::boxes::boxes;
use crate::case::{OpCase, integers};

/// No image, no sample, one sample, prime sizes, and 256 samples of the anchors of an 800x1344
/// image.
pub fn cases() -> Vec<OpCase> {
    [(0, 5, 4), (2, 5, 0), (1, 1, 1), (5, 101, 13), (2, 268_569, 256)]
        .iter()
        .map(|&(n, a, b)| {
            let inputs = vec![
                boxes(&[a, 4], 1, 700.0, 300.0),
                integers(&[n, b], 2, -1, a as i32),
                integers(&[n, a], 3, -1, 2),
                integers(&[n, a], 4, 0, 7),
            ];
            let label = format!("N {n}, A_total {a}, B {b}");
            OpCase::new(label, GatherAnchors, inputs)
        })
        .collect()
}
