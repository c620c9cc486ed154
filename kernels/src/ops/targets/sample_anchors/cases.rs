//! Cases of `sample_anchors` for the table of ops.

use super::SampleAnchors;
use crate::case::boxes::image_keys;
use crate::case::{OpCase, integers};

/// No image, no anchor, no room, one, primes, more room than anchors, the anchors of a block and
/// its neighbours, and those of an 800x1344 image.
pub fn cases() -> Vec<OpCase> {
    let shapes = [
        (0, 5, 4),
        (2, 0, 4),
        (2, 5, 0),
        (1, 1, 1),
        (5, 101, 13),
        (5, 101, 256),
        (1, 4200, 9000),
        (2, 4095, 64),
        (3, 4096, 7),
        (2, 4097, 300),
        (2, 268_569, 256),
    ];
    shapes
        .iter()
        .map(|&(n, a, batch)| {
            let inputs = vec![integers(&[n, a], 1, -1, 2), image_keys(n)];
            let op = SampleAnchors { batch, positive_fraction: 0.5, seed: 42 };
            OpCase::new(format!("N {n}, A_total {a}, B {batch}"), op, inputs)
        })
        .collect()
}
