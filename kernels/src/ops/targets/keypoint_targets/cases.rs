//! Test and benchmark cases of `keypoint_targets`.

use super::KeypointTargets;
use crate::Role;
use crate::case::boxes::boxes;
use crate::case::{OpCase, constant, integers, uniform};

/// No row, no keypoint, one of each, prime sizes, and the positives of a training step; some rows
/// are unused, some have no image or no object.
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

#[cfg(test)]
mod tests {
    use super::super::cell;
    use super::*;
    use crate::TensorDesc;

    use crate::case::hand::{run, tensor};
    use crate::case::index;
    use crate::cpu::HostTensor;

    /// A RoI of 10 x 20 pixels with 4 x 4 cells; keypoints inside, on both edges, outside, and
    /// unlabelled.
    #[test]
    fn keypoint_targets_match_hand_computed_values() {
        let points = [[14.9, 22.0, 2.0], [20.0, 30.0, 1.0], [9.9, 15.0, 2.0], [15.0, 15.0, 0.0]];
        let keypoints = TensorDesc::new(Role::Box, &[1, 1, 4, 3]);
        let inputs = [
            tensor(&[2, 4], [10.0, 10.0, 20.0, 30.0].repeat(2)),
            index(&[2], [0, 0]),
            index(&[2], [0, 0]),
            index(&[1], [1]),
            HostTensor::f32(keypoints, points.concat()),
        ];
        let outputs = run(&KeypointTargets { side: 4 }, &inputs);
        assert_eq!(outputs[0].as_i32(), [4 * 2 + 1, 15, -1, -1, -1, -1, -1, -1]);
        assert_eq!(outputs[1].as_i32(), [0, 0, 0, 0, -1, -1, -1, -1]);
    }

    #[test]
    fn zero_size_roi_has_target_cell_only_for_keypoint_at_its_point() {
        assert_eq!(cell(3.0, 3.0, 3.0, 56), Some(55));
        assert_eq!(cell(2.0, 3.0, 3.0, 56), None);
        assert_eq!(cell(4.0, 3.0, 3.0, 56), None);
    }
}
