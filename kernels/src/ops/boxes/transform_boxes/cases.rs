//! Test and benchmark cases of `transform_boxes`.

use super::TransformBoxes;
use crate::case::boxes::{boxes, views};
use crate::case::{OpCase, integers};

/// No image, a capacity of 0 boxes, one box, prime sizes, and the batch of a training step.
pub fn cases() -> Vec<OpCase> {
    [(0, 3), (2, 0), (1, 1), (5, 7), (12, 100)]
        .iter()
        .flat_map(|&(n, g)| [false, true].map(|plus_one| (n, g, plus_one)))
        .map(|(n, g, plus_one)| {
            let inputs = vec![
                boxes(&[n, g, 4], 1, 500.0, 300.0),
                integers(&[n], 2, 0, g as i32 + 1),
                views([480, 640], [800, 1066], &(0..n as i32).collect::<Vec<_>>()),
            ];
            let label = format!("N {n}, G {g}, plus_one {plus_one}");
            OpCase::new(label, TransformBoxes { plus_one }, inputs)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boxes::as_boxes;
    use crate::case::hand::run;
    use crate::case::index;
    use crate::cpu::HostTensor;
    use crate::{Role, TensorDesc};

    fn transform(plus_one: bool, inputs: &[HostTensor]) -> Vec<[f32; 4]> {
        as_boxes(run(&TransformBoxes { plus_one }, inputs)[0].as_f32()).to_vec()
    }

    /// Computed by hand: a 100 x 50 image, width doubled and height tripled.
    #[test]
    fn flipped_boxes_match_hand_computed_values_with_and_without_inclusive_edges() {
        let desc = TensorDesc::new(Role::Box, &[2, 2, 4]);
        let b = [10.0, 5.0, 30.0, 20.0];
        let boxes = HostTensor::f32(desc, [b, b, b, b].concat());
        let views = views([50, 100], [150, 200], &[0, 1]);
        let inputs = [boxes, index(&[2], [2, 1]), views];
        let plain = [20.0, 15.0, 60.0, 60.0];
        let mirrored = [140.0, 15.0, 180.0, 60.0];
        assert_eq!(transform(false, &inputs), [plain, plain, mirrored, [0.0; 4]]);
        let inclusive = [139.0, 15.0, 179.0, 60.0];
        assert_eq!(transform(true, &inputs), [plain, plain, inclusive, [0.0; 4]]);
    }
}
