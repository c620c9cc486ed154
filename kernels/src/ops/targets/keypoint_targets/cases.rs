//! Cases of `keypoint_targets` for the table of ops.

use super::KeypointTargets;
use crate::Role;
use crate::case::boxes::boxes;
use crate::case::{OpCase, constant, integers, uniform};

/// No row, no keypoint, one, primes, and the positives of a training step; a part of them in use,
/// of no image, and of no object.
pub fn cases() -> Vec<OpCase> {
    [(0, 2, 3, 17, 56), (3, 1, 1, 0, 4), (1, 1, 1, 1, 1), (101, 5, 7, 11, 28), (512, 8, 20, 17, 56)]
        .iter()
        .map(|&(m, n, g, k, side)| {
            let mut keypoints = uniform(Role::Box, &[n, g, k, 3], 5, -5.0, 120.0);
            let labels = integers(&[n * g * k], 6, 0, 3);
            let points = keypoints.as_f32_mut().chunks_exact_mut(3);
            points.zip(labels.as_i32()).for_each(|(point, label)| point[2] = *label as f32);
            let inputs = vec![
                boxes(&[m, 4], 1, 60.0, 80.0),
                integers(&[m], 2, -1, n as i32),
                integers(&[m], 3, -1, g as i32),
                constant(&[1], m as i32 - m as i32 / 4),
                keypoints,
            ];
            let label = format!("M {m}, N {n}, G {g}, K {k}, side {side}");
            OpCase::new(label, KeypointTargets { side }, inputs)
        })
        .collect()
}
