//! Cases of `sample_rois` for the table of ops.

use std::sync::Arc;

use super::SampleRois;
use crate::boxes::SampleKey;
use crate::boxes::values::{boxes, image_keys};
use crate::case::{OpCase, integers};

/// No image, candidate or room, one, primes, and a training step.
pub fn cases() -> Vec<OpCase> {
    [(0, 5, 4), (2, 0, 4), (2, 5, 0), (1, 1, 1), (5, 101, 13), (3, 7, 64), (2, 2100, 512)]
        .iter()
        .flat_map(|&s| [SampleKey::Philox, SampleKey::Hash].map(|key| (s, key)))
        .map(|((n, c, batch), key)| {
            let inputs = vec![
                boxes(&[n, c, 4], 1, 300.0, 200.0),
                integers(&[n, c], 2, -1, 4),
                integers(&[n, c], 3, 0, 7),
                integers(&[n, c], 4, -9, 100_000),
                integers(&[n], 5, c as i32 / 2, c as i32 + 1),
                image_keys(n),
            ];
            let op = SampleRois { batch, positive_fraction: 0.25, seed: 42, key };
            OpCase::new(format!("N {n}, C {c}, R {batch}, {key:?}"), Arc::new(op), inputs)
        })
        .collect()
}
