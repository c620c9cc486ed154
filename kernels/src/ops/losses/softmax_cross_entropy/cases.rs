//! Test and benchmark cases of `softmax_cross_entropy`.

use std::sync::Arc;

use super::SoftmaxCrossEntropy;
use crate::Role;
use crate::case::boxes::in_order;
use crate::case::{OpCase, constant, integers, normal};

/// 0 and 1 rows, prime row counts, row counts near the block size of the sum (256), and the RoIs of
/// 2 COCO images.
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
        // More than four columns per lane.
        (401, 165, 2),
        (4099, 5, 3),
    ];
    let few = rows
        .iter()
        .flat_map(|&(rows, classes, images)| [1, 2].map(|ipg| case(rows, classes, images, ipg)));
    few.chain([many_groups(), stated()]).collect()
}

fn case(rows: usize, classes: usize, images: usize, ipg: usize) -> OpCase {
    let inputs = vec![
        normal(Role::Activation, &[rows, classes], 1, 2.0),
        integers(&[rows], 2, -1, classes as i32),
        in_order(rows, images),
        constant(&[1], images as i32),
    ];
    let label = format!("{rows}x{classes} of {images} images, {ipg} a group");
    OpCase::new(label, SoftmaxCrossEntropy { ipg, rows_per_image: None }, inputs).grad(&[0])
}

/// More groups of images than the CUDA kernels count at a time, unused images, and rows of unused
/// images.
fn many_groups() -> OpCase {
    let mut case = case(1100, 7, 1100, 1);
    case.label = "many groups, and rows of no image".into();
    case.inputs[2] = integers(&[1100], 9, -1, 2 * 600);
    case
}

/// Keypoint maps, with a fixed number of rows as the divisor.
fn stated() -> OpCase {
    let mut case = case(51, 784, 3, 2);
    case.label += ", over 34 an image";
    case.op = Arc::new(SoftmaxCrossEntropy { ipg: 2, rows_per_image: Some(34) });
    case
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::hand::{ints, loss_and_grad, tensor};

    const PLAIN: SoftmaxCrossEntropy = SoftmaxCrossEntropy { ipg: 1, rows_per_image: None };

    /// Equal logits cost ln(K+1), however large they are; an ignored row costs nothing.
    #[test]
    fn uniform_logits_match_hand_computed_loss() {
        let logits = vec![1e4, 1e4, 1e4, 1e4, -3.0, -3.0, -3.0, -3.0, f32::NAN, 0.0, 0.0, 0.0];
        let logits = tensor(&[3, 4], logits);
        let inputs = [logits, ints(&[0, 3, -1]), ints(&[0, 0, 0]), ints(&[1])];
        let (loss, grad) = loss_and_grad(&PLAIN, &inputs, 8.0);
        assert!((loss - 4.0f32.ln()).abs() < 1e-6);
        let expected = [[-3.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, -3.0], [0.0; 4]].concat();
        assert_eq!(grad, expected);
    }
}
