//! Cases of `encode_boxes` for the table of ops.

use super::EncodeBoxes;
use crate::case::boxes::boxes;
use crate::case::{OpCase, integers};

/// No row, no ground truth, one, primes, and 512 RoIs of each of 12 images.
pub fn cases() -> Vec<OpCase> {
    [(0, 2, 3), (5, 2, 0), (1, 1, 1), (101, 5, 7), (6144, 12, 100)]
        .iter()
        .flat_map(|&s| [false, true].map(|plus_one| (s, plus_one)))
        .map(|((m, n, g), plus_one)| {
            let inputs = vec![
                boxes(&[m, 4], 1, 700.0, 300.0),
                integers(&[m], 2, -1, n as i32),
                integers(&[m], 3, -1, g as i32),
                boxes(&[n, g, 4], 4, 700.0, 300.0),
                integers(&[m], 5, -1, 81),
            ];
            let op = EncodeBoxes { weights: [10.0, 10.0, 5.0, 5.0], plus_one };
            let label = format!("M {m}, N {n}, G {g}, plus_one {plus_one}");
            OpCase::new(label, op, inputs)
        })
        .collect()
}
