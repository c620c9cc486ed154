//! Test and benchmark cases of `match_rois`.

use super::MatchRois;
use crate::case::boxes::boxes;
use crate::case::{OpCase, constant, integers};

/// No RoI, no ground truth, one of each, prime sizes, more ground truths than a block loads at a
/// time (256), and the RoIs of a training step; some RoIs are unused, some have zero area.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::hand::{run, tensor};
    use crate::case::index;

    /// RoIs at the IoU threshold, below it, with zero area, in an image without ground truth,
    /// without an image, and past the count.
    #[test]
    fn match_rois_matches_hand_computed_values() {
        let of = |shape: &[usize], rows: &[[f32; 4]]| tensor(shape, rows.concat());
        let rois = [
            [0.0, 0.0, 10.0, 6.0],
            [0.0, 0.0, 10.0, 5.0],
            [3.0, 0.0, 3.0, 9.0],
            [0.0, 0.0, 10.0, 10.0],
            [0.0, 0.0, 10.0, 10.0],
            [0.0, 0.0, 10.0, 10.0],
        ];
        let gts = [[90.0, 0.0, 99.0, 9.0], [0.0, 0.0, 10.0, 10.0], [0.0; 4], [0.0; 4]];
        let inputs = [
            of(&[6, 4], &rois),
            index(&[6], [0, 0, 0, 1, -1, 0]),
            index(&[1], [5]),
            of(&[2, 2, 4], &gts),
            index(&[2, 2], [3, 7, 0, 0]),
            index(&[2], [2, 0]),
        ];
        let outputs = run(&MatchRois { fg_iou: 0.6, plus_one: false }, &inputs);
        assert_eq!(outputs[0].as_i32(), [7, 0, -1, 0, -1, -1]);
        assert_eq!(outputs[1].as_i32(), [1, 0, 0, 0, 0, 0]);
    }
}
