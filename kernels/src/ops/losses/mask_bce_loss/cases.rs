//! Test and benchmark cases of `mask_bce_loss`.

use super::MaskBceLoss;
use crate::Role;
use crate::case::boxes::in_order;
use crate::case::{OpCase, constant, integers, uniform};

/// 0 and 1 rows, prime sizes, counts below the capacity, and the positives of a COCO image.
pub fn cases() -> Vec<OpCase> {
    let rows = [
        (0, 5, 0, 1),
        (1, 1, 1, 1),
        (5, 7, 5, 2),
        (13, 5, 7, 3),
        (11, 5, 0, 2),
        (4500, 1, 4499, 1),
        (16, 28, 13, 1),
    ];
    let few = rows.iter().flat_map(|&(rows, side, count, images)| {
        [1, 2].map(|ipg| case([rows, side, side], count, images, ipg))
    });
    few.chain([many_groups()]).collect()
}

fn case(shape: [usize; 3], count: i32, images: usize, ipg: usize) -> OpCase {
    let [rows, ..] = shape;
    let one = |value| constant(&[1], value);
    let inputs = vec![
        uniform(Role::Activation, &shape, 1, -3.0, 3.0),
        integers(&[rows], 2, -1, 3),
        uniform(Role::Mask, &shape, 3, 0.0, 1.0),
        in_order(rows, images),
        one(count),
        one(images as i32),
    ];
    let label = format!("{shape:?}, {count} in use, {images} images, {ipg} a group");
    OpCase::new(label, MaskBceLoss { ipg }, inputs).grad(&[0])
}

/// More groups of images than the CUDA kernels count at a time, unused images, and rows of unused
/// images.
fn many_groups() -> OpCase {
    let mut case = case([1100, 1, 2], 1090, 1100, 1);
    case.label = "many groups, and rows of no image".into();
    case.inputs[3] = integers(&[1100], 9, -1, 2 * 600);
    case
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::hand::{assert_near, ints, loss_and_grad, tensor};

    /// Rows of one pixel: row 0 has logit 0 and a soft target (loss ln 2), row 1 has logit ln 3 and
    /// target 1 (loss ln 4/3); row 2 is background, row 3 is past the count.
    #[test]
    fn mask_bce_of_positives_matches_hand_computed_value() {
        let logits = vec![0.0, 3.0f32.ln(), f32::NAN, f32::NAN];
        let inputs = [
            tensor(&[4, 1, 1], logits),
            ints(&[1, 2, 0, 1]),
            tensor(&[4, 1, 1], [0.25, 1.0, 0.0, 0.0]),
            ints(&[0; 4]),
            ints(&[3]),
            ints(&[1]),
        ];
        let (loss, grad) = loss_and_grad(&MaskBceLoss { ipg: 1 }, &inputs, 2.0);
        let expected = 0.5 * (2.0f32.ln() + (4.0f32 / 3.0).ln());
        assert!((loss - expected).abs() < 1e-6, "{loss} {expected}");
        assert_near(&grad, &[0.25, -0.25, 0.0, 0.0], 1e-6);
    }
}
