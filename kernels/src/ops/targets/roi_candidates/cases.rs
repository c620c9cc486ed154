//! Test and benchmark cases of `roi_candidates`.

use super::RoiCandidates;
use crate::case::boxes::boxes;
use crate::case::{OpCase, constant, integers};

/// No image, proposal or ground truth, one of each, prime sizes, row counts near the block size of
/// 256, more than 256 ground truths, and a training step.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boxes::as_boxes;
    use crate::case::hand::{run, tensor};
    use crate::case::index;

    #[test]
    fn roi_candidates_match_hand_computed_values() {
        let gt = [0.0, 0.0, 10.0, 10.0];
        let (good, middling, poor) = ([0.0, 0.0, 10.0, 9.0], [0.0, 0.0, 10.0, 5.0], [90.0; 4]);
        let of = |shape: &[usize], boxes: Vec<[f32; 4]>| tensor(shape, boxes.concat());
        let proposals = vec![good, middling, poor, good, poor, gt, gt, gt];
        let inputs = [
            of(&[2, 4, 4], proposals),
            index(&[2, 4], [5, 6, 7, 8, 9, -1, -1, -1]),
            index(&[2], [3, 1]),
            of(&[2, 2, 4], vec![[50.0, 50.0, 60.0, 60.0], gt, gt, gt]),
            index(&[2, 2], [4, 9, 1, 1]),
            index(&[2], [2, 0]),
            constant(&[1], 2),
        ];
        let op = RoiCandidates { fg_iou: 0.6, bg_iou: 0.4, plus_one: false };
        let outputs = run(&op, &inputs);
        let candidates = as_boxes(outputs[0].as_f32());
        assert_eq!(candidates[..6], [good, middling, poor, [50.0, 50.0, 60.0, 60.0], gt, [0.0; 4]]);
        assert_eq!(outputs[1].as_i32(), [9, -1, 0, 4, 9, -1, 0, -1, -1, -1, -1, -1]);
        assert_eq!(outputs[2].as_i32(), [1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(outputs[3].as_i32(), [5, 6, 7, -2, -3, -1, 9, -1, -1, -1, -1, -1]);
        assert_eq!(outputs[4].as_i32(), [5, 1]);
        let one_image = [&inputs[..6], &[constant(&[1], 1)]].concat();
        assert_eq!(run(&op, &one_image)[4].as_i32(), [5, 0]);
    }
}
