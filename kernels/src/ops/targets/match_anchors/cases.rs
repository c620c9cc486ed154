//! Test and benchmark cases of `match_anchors`.

use super::MatchAnchors;
use crate::case::boxes::{boxes, sizes};
use crate::case::{OpCase, constant, integers};

/// No image, anchor or ground truth, one of each, prime sizes, sizes near the tile size, and the
/// anchors of an 800x1344 image.
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

#[cfg(test)]
mod tests {
    use super::*;

    use crate::case::hand::{run, tensor};
    use crate::case::index;

    fn op() -> MatchAnchors {
        MatchAnchors {
            fg_iou: 0.7,
            bg_iou: 0.3,
            low_quality: true,
            plus_one: false,
            straddle_filter: false,
        }
    }

    /// Their IoUs with a 10 x 10 box at the origin are 0.8, 0.5, 0.5, 0.2 and 0.
    const ANCHORS: [[f32; 4]; 5] = [
        [0.0, 0.0, 10.0, 8.0],
        [0.0, 0.0, 10.0, 5.0],
        [0.0, 5.0, 10.0, 10.0],
        [0.0, 0.0, 10.0, 2.0],
        [-90.0, 0.0, -80.0, 9.0],
    ];

    fn labels(
        op: &MatchAnchors,
        anchors: &[[f32; 4]],
        gts: &[[f32; 4]],
        num_images: i32,
    ) -> (Vec<i32>, Vec<i32>) {
        let inputs = [
            tensor(&[anchors.len(), 4], anchors.concat()),
            tensor(&[1, gts.len(), 4], gts.concat()),
            index(&[1], [gts.len() as i32]),
            sizes(1, 100, 100),
            constant(&[1], num_images),
        ];
        let outputs = run(op, &inputs);
        (outputs[0].as_i32().to_vec(), outputs[1].as_i32().to_vec())
    }

    #[test]
    fn anchor_labels_match_hand_computed_values() {
        let gt = [0.0, 0.0, 10.0, 10.0];
        assert_eq!(labels(&op(), &ANCHORS, &[gt], 1), (vec![1, -1, -1, 0, 0], vec![0; 5]));
        let filter = MatchAnchors { straddle_filter: true, ..op() };
        assert_eq!(labels(&filter, &ANCHORS, &[gt], 1).0, [1, -1, -1, 0, -1]);
        assert_eq!(labels(&op(), &ANCHORS, &[], 1), (vec![0; 5], vec![0; 5]));
        assert_eq!(labels(&op(), &ANCHORS, &[gt], 0), (vec![-1; 5], vec![0; 5]));
    }

    /// Two anchors tie for the first ground truth at an IoU of 1/3. Both become foreground, and the
    /// anchor with a better ground truth keeps that match.
    #[test]
    fn anchors_tied_for_best_iou_are_all_foreground() {
        let anchors = [[0.0, 0.0, 10.0, 10.0], [10.0, 0.0, 20.0, 10.0]];
        let gts = [[5.0, 0.0, 15.0, 10.0], [0.0, 0.0, 10.0, 16.0]];
        assert_eq!(labels(&op(), &anchors, &gts, 1), (vec![1, 1], vec![1, 0]));
        let strict = MatchAnchors { low_quality: false, ..op() };
        assert_eq!(labels(&strict, &anchors, &gts, 1), (vec![-1, -1], vec![0, 0]));
        // A best IoU of 0.2 is sufficient; if no anchor overlaps, all anchors tie at 0, as in
        // torchvision.
        assert_eq!(labels(&op(), &ANCHORS, &[[0.0, 0.0, 50.0, 2.0]], 1).0, [0, 0, 0, 1, 0]);
        assert_eq!(labels(&op(), &ANCHORS, &[[60.0, 60.0, 70.0, 70.0]], 1).0, [1; 5]);
    }
}
