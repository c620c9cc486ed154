//! Test and benchmark cases of `bce_loss`.

use super::BceLoss;
use crate::Role;
use crate::case::boxes::in_order;
use crate::case::{OpCase, constant, integers, normal};

/// 0 and 1 rows, prime row counts, row counts near the block size of the sum, and the samples of 12
/// images.
pub fn cases() -> Vec<OpCase> {
    let rows =
        [(0, 1), (1, 1), (7, 2), (13, 5), (255, 3), (256, 3), (257, 3), (3072, 12), (4500, 1)];
    let few =
        rows.iter().flat_map(|&(rows, images)| [1, 2].map(|ipg| case(rows, images, ipg, None)));
    let stated = [(13, 5), (257, 3)].map(|(rows, images)| case(rows, images, 2, Some(64)));
    few.chain(stated).chain([many_groups(None), many_groups(Some(3))]).collect()
}

fn case(rows: usize, images: usize, ipg: usize, rows_per_image: Option<usize>) -> OpCase {
    let shape: &[usize] = if ipg == 1 { &[rows] } else { &[rows, 1] };
    let inputs = vec![
        normal(Role::Activation, shape, 1, 3.0),
        integers(&[rows], 2, -1, 2),
        in_order(rows, images),
        constant(&[1], images as i32),
    ];
    let mut label = format!("{rows} rows of {images} images, {ipg} a group");
    if let Some(rows) = rows_per_image {
        label += &format!(", over {rows} an image");
    }
    OpCase::new(label, BceLoss { ipg, rows_per_image }, inputs).grad(&[0])
}

/// More groups of images than the CUDA kernels count at a time, unused images, and rows of unused
/// images.
fn many_groups(rows_per_image: Option<usize>) -> OpCase {
    let mut case = case(2053, 2053, 1, rows_per_image);
    case.label = "many groups, and rows of no image".into();
    if rows_per_image.is_some() {
        case.label += ", over a stated number";
    }
    case.inputs[2] = integers(&[2053], 9, -1, 2 * 1030);
    case
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::hand::{assert_near, ints, loss_and_grad, run, tensor};
    use crate::cpu::HostTensor;

    fn inputs(
        logits: &[f32],
        labels: &[i32],
        image_idx: &[i32],
        num_images: i32,
    ) -> Vec<HostTensor> {
        let logits = tensor(&[logits.len()], logits);
        vec![logits, ints(labels), ints(image_idx), ints(&[num_images])]
    }

    /// Zero logits cost ln 2 each; a logit of ln 3 has probability 3/4. Group 0 (images 0, 1) has
    /// the mean (ln 2 + ln 4/3) / 2, group 1 (image 2) ln 4; ignored rows may have any values.
    #[test]
    fn bce_of_image_groups_matches_hand_computed_values() {
        let third = 3.0f32.ln();
        let inputs = inputs(
            &[0.0, third, f32::NAN, third, f32::NAN],
            &[0, 1, -1, 0, 1],
            &[0, 1, 1, 2, 3],
            3,
        );
        let op = BceLoss { ipg: 2, rows_per_image: None };
        let (loss, grad) = loss_and_grad(&op, &inputs, 8.0);
        let expected = 0.5 * (0.5 * (2.0f32.ln() + (4.0f32 / 3.0).ln()) + 4.0f32.ln());
        assert!((loss - expected).abs() < 1e-6, "{loss} {expected}");
        assert_near(&grad, &[1.0, -0.5, 0.0, 3.0, 0.0], 1e-6);
    }

    /// A group with all images weighs rows equally; groups of one image weigh images equally.
    #[test]
    fn bce_mean_is_per_image_group() {
        let inputs = inputs(&[0.0, 0.0, 0.0, 9.0], &[0, 0, 0, 0], &[0, 0, 0, 1], 2);
        let loss =
            |ipg| f64::from(run(&BceLoss { ipg, rows_per_image: None }, &inputs)[0].as_f32()[0]);
        let (flat, high) = (2.0f64.ln(), 9.0 + (-9.0f64).exp().ln_1p());
        assert!((loss(2) - (3.0 * flat + high) / 4.0).abs() < 1e-5);
        assert!((loss(1) - (flat + high) / 2.0).abs() < 1e-5);
        assert_eq!(loss(2), loss(7), "one group, whatever it could hold");
    }

    /// Four zero logits in two images, one of them ignored: a loss of ln 2 for each of three,
    /// divided by 8 rows per image regardless of the number of rows.
    #[test]
    fn bce_fixed_divisor_matches_hand_computed_values() {
        let inputs = inputs(&[0.0; 4], &[0, 1, 1, -1], &[0, 0, 1, 1], 2);
        for ipg in [1, 2] {
            let op = BceLoss { ipg, rows_per_image: Some(8) };
            let loss = run(&op, &inputs)[0].as_f32()[0];
            assert!((loss - 3.0 * 2.0f32.ln() / 16.0).abs() < 1e-7, "{loss}");
        }
    }
}
