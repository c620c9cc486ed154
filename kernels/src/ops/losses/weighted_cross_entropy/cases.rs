//! Test and benchmark cases of `weighted_cross_entropy`.

use std::sync::Arc;

use super::WeightedCrossEntropy;
use crate::Role;
use crate::case::boxes::in_order;
use crate::case::{OpCase, constant, index, integers, normal};

/// 0 and 1 rows, prime row counts, row counts near the block size of the sum, more classes than fit
/// in one kernel argument, and the RoIs of 2 COCO images.
pub fn cases() -> Vec<OpCase> {
    let rows = [
        (0, 5, 1),
        (1, 1, 1),
        (7, 5, 2),
        (13, 11, 5),
        (255, 5, 3),
        (256, 5, 3),
        (257, 5, 3),
        (1024, 81, 2),
        (40, 1204, 2),
        (4099, 5, 3),
    ];
    let few = rows.iter().flat_map(|&(rows, classes, images)| {
        [(1, 0.0), (2, 0.1)].map(|(ipg, smoothing)| case(rows, classes, images, ipg, smoothing))
    });
    few.chain([many_groups(), weightless()]).collect()
}

fn case(rows: usize, classes: usize, images: usize, ipg: usize, label_smoothing: f32) -> OpCase {
    let inputs = vec![
        normal(Role::Activation, &[rows, classes], 1, 2.0),
        integers(&[rows], 2, -1, classes as i32),
        in_order(rows, images),
        constant(&[1], images as i32),
    ];
    let label =
        format!("{rows}x{classes} of {images} images, {ipg} a group, {label_smoothing} smoothed");
    // Weights from 0.25 to 2; the background weighs less than most classes.
    let class_weights: Arc<[f32]> =
        (0..classes).map(|class| 0.25 * (1 + class * 5 % 8) as f32).collect();
    let op = WeightedCrossEntropy { ipg, class_weights, label_smoothing };
    OpCase::new(label, op, inputs).grad(&[0])
}

/// More groups of images than blocks, unused images, and rows of unused images.
fn many_groups() -> OpCase {
    let mut case = case(1100, 7, 1100, 1, 0.1);
    case.label = "many groups, and rows of no image".into();
    case.inputs[2] = integers(&[1100], 9, -1, 2 * 600);
    case
}

/// Classes with weight 0: one group has only rows of such classes, another group has some.
fn weightless() -> OpCase {
    let mut case = case(64, 3, 2, 1, 0.2);
    case.label = "classes of weight 0".into();
    let labels: Vec<i32> = (0..64).map(|row| if row < 32 { 1 } else { row % 3 }).collect();
    case.inputs[1] = index(&[64], labels);
    let class_weights = Arc::new([0.5, 0.0, 2.0]);
    case.op = Arc::new(WeightedCrossEntropy { ipg: 1, class_weights, label_smoothing: 0.2 });
    case
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::hand::{ints, loss_and_grad, tensor};

    /// Two rows, of classes with weights 1 and 3: (1 * ln 2 + 3 * (ln 2 + 0)) / 4, regardless of a
    /// common factor of the weights.
    #[test]
    fn class_weights_are_normalised_within_image_group() {
        let logits = tensor(&[3, 2], [0.0, 0.0, 5.0, 5.0, f32::NAN, 0.0]);
        let inputs = [logits, ints(&[0, 1, -1]), ints(&[0, 0, 0]), ints(&[1])];
        for scale in [1.0, 64.0] {
            let class_weights = Arc::new([scale, 3.0 * scale]);
            let op = WeightedCrossEntropy { ipg: 1, class_weights, label_smoothing: 0.0 };
            let (loss, grad) = loss_and_grad(&op, &inputs, 1.0);
            assert!((loss - 2.0f32.ln()).abs() < 1e-6);
            assert_eq!(grad, [-0.125, 0.125, 0.375, -0.375, 0.0, 0.0]);
        }
    }
}
