//! Cases of `transform_boxes` for the table of ops.

use super::TransformBoxes;
use crate::case::boxes::{boxes, views};
use crate::case::{OpCase, integers};

/// No image, no room for a box, one, primes, and the batch of a training step.
pub fn cases() -> Vec<OpCase> {
    [(0, 3), (2, 0), (1, 1), (5, 7), (12, 100)]
        .iter()
        .flat_map(|&(n, g)| [false, true].map(|plus_one| (n, g, plus_one)))
        .map(|(n, g, plus_one)| {
            let inputs = vec![
                boxes(&[n, g, 4], 1, 500.0, 300.0),
                integers(&[n], 2, 0, g as i32 + 1),
                views([480, 640], [800, 1066], &(0..n as i32).collect::<Vec<_>>()),
            ];
            let label = format!("N {n}, G {g}, plus_one {plus_one}");
            OpCase::new(label, TransformBoxes { plus_one }, inputs)
        })
        .collect()
}
