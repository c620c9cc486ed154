//! Cases of `roi_candidates` for the table of ops.

use super::RoiCandidates;
use crate::case::boxes::boxes;
use crate::case::{OpCase, constant, integers};

/// No image, proposal or ground truth, one, primes, around a block of 256 rows, more ground truths,
/// and a training step.
pub fn cases() -> Vec<OpCase> {
    let shapes = [
        (0, 3, 3),
        (2, 0, 3),
        (2, 3, 0),
        (2, 0, 0),
        (1, 1, 1),
        (5, 101, 7),
        (2, 253, 3),
        (3, 11, 257),
        (2, 2000, 100),
    ];
    shapes
        .iter()
        .flat_map(|&s| [false, true].map(|plus_one| (s, plus_one)))
        .map(|((n, p, g), plus_one)| {
            let inputs = vec![
                boxes(&[n, p, 4], 1, 300.0, 200.0),
                integers(&[n, p], 2, 0, 1000),
                integers(&[n], 3, p as i32 / 2, p as i32 + 1),
                boxes(&[n, g, 4], 4, 300.0, 200.0),
                integers(&[n, g], 5, 1, 81),
                integers(&[n], 6, 0, g as i32 + 1),
                constant(&[1], (n as i32 - 1).max(1)),
            ];
            let op = RoiCandidates { fg_iou: 0.5, bg_iou: 0.5, plus_one };
            let label = format!("N {n}, P {p}, G {g}, plus_one {plus_one}");
            OpCase::new(label, op, inputs)
        })
        .collect()
}
