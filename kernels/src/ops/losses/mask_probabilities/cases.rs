//! Test and benchmark cases of `mask_probabilities`.

use super::MaskProbabilities;
use crate::Role;
use crate::case::{OpCase, constant, integers, uniform};

/// 0 and 1 rows, prime sizes, 256 pixels (a block) and 257, counts below the capacity, and the
/// detections of a COCO image.
pub fn cases() -> Vec<OpCase> {
    let shapes = [
        ([0, 5, 5], 0),
        ([1, 1, 1], 1),
        ([1, 16, 16], 1),
        ([257, 1, 1], 257),
        ([7, 5, 5], 5),
        ([7, 5, 5], 9),
        ([16, 28, 28], 13),
    ];
    shapes
        .iter()
        .map(|(shape, count)| {
            let inputs = vec![
                uniform(Role::Activation, shape, 1, -9.0, 9.0),
                integers(&[shape[0]], 2, -1, 81),
                constant(&[1], *count),
            ];
            OpCase::new(format!("{shape:?}, {count} in use"), MaskProbabilities, inputs)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::hand::{assert_near, run, tensor};
    use crate::case::index;

    #[test]
    fn mask_without_class_has_zero_probability() {
        let logits = vec![2.0f32.ln(), 5.0, 0.0, 1.0];
        let ints = |v: &[i32]| index(&[v.len()], v);
        let inputs = [tensor(&[4, 1, 1], logits), ints(&[1, 0, 2, 1]), ints(&[3])];
        let probs = run(&MaskProbabilities, &inputs);
        assert_near(probs[0].as_f32(), &[2.0 / 3.0, 0.0, 0.5, 0.0], 1e-6);
    }
}
