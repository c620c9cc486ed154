//! Cases of `sample_rois` for the table of ops.

use super::SampleRois;
use crate::case::boxes::{boxes, image_keys};
use crate::case::{OpCase, integers};

/// No image, candidate or room, one, primes, a block and its neighbours, a training step, and keys
/// so few that candidates tie.
pub fn cases() -> Vec<OpCase> {
    let shapes = [
        (0, 5, 4, 100_000),
        (2, 0, 4, 100_000),
        (2, 5, 0, 100_000),
        (1, 1, 1, 100_000),
        (5, 101, 13, 100_000),
        (3, 7, 64, 100_000),
        (2, 1023, 100, 100_000),
        (2, 1024, 100, -7),
        (2, 2050, 300, -8),
        (2, 2100, 512, 100_000),
        (5, 9000, 512, 100_000),
    ];
    shapes
        .iter()
        .map(|&(n, c, batch, last_key)| {
            let inputs = vec![
                boxes(&[n, c, 4], 1, 300.0, 200.0),
                integers(&[n, c], 2, -1, 4),
                integers(&[n, c], 3, 0, 7),
                integers(&[n, c], 4, -9, last_key),
                integers(&[n], 5, c as i32 / 2, c as i32 + 1),
                image_keys(n),
            ];
            let op = SampleRois { batch, positive_fraction: 0.25, seed: 42 };
            OpCase::new(format!("N {n}, C {c}, R {batch}, keys to {last_key}"), op, inputs)
        })
        .collect()
}
