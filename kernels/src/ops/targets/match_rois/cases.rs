//! Cases of `match_rois` for the table of ops.

use super::MatchRois;
use crate::case::boxes::boxes;
use crate::case::{OpCase, constant, integers};

/// No RoI, no ground truth, one, primes, more ground truths than a block of 256 stages, and the
/// RoIs of a training step; a part of them in use, some without extent.
pub fn cases() -> Vec<OpCase> {
    [(0, 2, 3), (5, 2, 0), (1, 1, 1), (101, 5, 7), (300, 3, 257), (6144, 12, 100)]
        .iter()
        .flat_map(|&shape| [false, true].map(|plus_one| (shape, plus_one)))
        .map(|((m, n, g), plus_one)| {
            let mut rois = boxes(&[m, 4], 1, 300.0, 200.0);
            for roi in rois.as_f32_mut().chunks_exact_mut(4).step_by(11) {
                roi[2] = roi[0] - if plus_one { 1.0 } else { 0.0 };
            }
            let inputs = vec![
                rois,
                integers(&[m], 2, -1, n as i32),
                constant(&[1], m as i32 - m as i32 / 4),
                boxes(&[n, g, 4], 4, 300.0, 200.0),
                integers(&[n, g], 5, 1, 81),
                integers(&[n], 6, 0, g as i32 + 1),
            ];
            let label = format!("M {m}, N {n}, G {g}, plus_one {plus_one}");
            OpCase::new(label, MatchRois { fg_iou: 0.4, plus_one }, inputs)
        })
        .collect()
}
