//! Cases of `match_anchors` for the table of ops.

use super::MatchAnchors;
use crate::case::boxes::{boxes, sizes};
use crate::case::{OpCase, constant, integers};

/// No image, anchor or ground truth, one, primes, a tile and its neighbours, and the anchors of an
/// 800x1344 image.
pub fn cases() -> Vec<OpCase> {
    let shapes = [
        (0, 5, 3),
        (2, 0, 3),
        (2, 5, 0),
        (1, 1, 1),
        (5, 101, 7),
        (2, 2047, 3),
        (2, 2048, 3),
        (2, 2049, 3),
        (2, 1023, 127),
        (2, 1024, 128),
        (2, 1025, 129),
        (3, 300, 300),
        (2, 268_569, 20),
    ];
    shapes
        .iter()
        .flat_map(|&s| [false, true].map(|mlperf| (s, mlperf, true)))
        .chain([((2, 1025, 7), false, false)])
        .map(|((n, a, g), mlperf, low_quality)| {
            let inputs = vec![
                boxes(&[a, 4], 1, 700.0, 300.0),
                boxes(&[n, g, 4], 2, 700.0, 300.0),
                integers(&[n], 3, 0, g as i32 + 1),
                sizes(n, 800, 800),
                constant(&[1], (n as i32 - 1).max(1)),
            ];
            let op = MatchAnchors {
                fg_iou: 0.7,
                bg_iou: 0.3,
                low_quality,
                plus_one: mlperf,
                straddle_filter: mlperf,
            };
            let label = format!("N {n}, A_total {a}, G {g}, mlperf {mlperf}, low {low_quality}");
            OpCase::new(label, op, inputs)
        })
        .collect()
}
