//! Test and benchmark cases of `smooth_l1_loss`.

use super::SmoothL1Loss;
use crate::Role;
use crate::case::boxes::in_order;
use crate::case::{OpCase, constant, integers, normal, uniform};

/// 0 and 1 rows, prime row counts, row counts near the block size of the sum, and the RoIs of 2
/// images.
pub fn cases() -> Vec<OpCase> {
    let rows = [(0, 1), (1, 1), (7, 2), (13, 5), (255, 3), (256, 3), (257, 3), (4500, 2)];
    let few = rows.iter().flat_map(|&(rows, images)| {
        [(1.0, 1), (1.0 / 9.0, 2), (0.0, 2)].map(|(beta, ipg)| case(rows, images, beta, ipg, None))
    });
    let stated = [(13, 5), (257, 3)].map(|(rows, images)| case(rows, images, 0.0, 2, Some(64)));
    few.chain(stated).chain([many_groups(None), many_groups(Some(3))]).collect()
}

fn case(
    rows: usize,
    images: usize,
    beta: f32,
    ipg: usize,
    rows_per_image: Option<usize>,
) -> OpCase {
    // Without a quadratic part the derivative jumps at 0; finite differences must not cross 0.
    let (pred, target) = match beta {
        0.0 => (
            uniform(Role::Activation, &[rows, 4], 1, 1.0, 2.0),
            uniform(Role::Box, &[rows, 4], 2, -1.0, 0.0),
        ),
        _ => (normal(Role::Activation, &[rows, 4], 1, 1.0), normal(Role::Box, &[rows, 4], 2, 1.0)),
    };
    let inputs = vec![
        pred,
        target,
        integers(&[rows], 3, -1, 3),
        in_order(rows, images),
        constant(&[1], images as i32),
    ];
    let mut label = format!("{rows} rows of {images} images, beta {beta:.2}, {ipg} a group");
    if let Some(rows) = rows_per_image {
        label += &format!(", over {rows} an image");
    }
    let op = SmoothL1Loss { beta, ipg, rows_per_image };
    let case = OpCase::new(label, op, inputs).grad(&[0]);
    // The second derivative jumps at +-beta, which causes an error of the order of eps / beta in a
    // few rows.
    case.grad_bounds(1e-3, 2e-2)
}

/// More groups of images than the CUDA kernels count at a time, unused images, and rows of unused
/// images.
fn many_groups(rows_per_image: Option<usize>) -> OpCase {
    let mut case = case(2053, 2053, 1.0, 1, rows_per_image);
    case.label = "many groups, and rows of no image".into();
    if rows_per_image.is_some() {
        case.label += ", over a stated number";
    }
    case.inputs[3] = integers(&[2053], 9, -1, 2 * 1030);
    case
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::hand::{ints, loss_and_grad, run, tensor};

    /// With beta 1, the differences 0.5, -3, 0 and 0 give a loss of 0.125 + 2.5. It is divided by
    /// four sampled rows; one is positive. Rows without a positive label may have any values.
    #[test]
    fn smooth_l1_divides_positives_by_sampled_rows() {
        let pred =
            [[0.5, -3.0, 1.0, 2.0], [f32::NAN; 4], [7.0; 4], [7.0; 4], [f32::NAN; 4]].concat();
        let target = [[0.0, 0.0, 1.0, 2.0], [0.0; 4], [0.0; 4], [0.0; 4], [0.0; 4]].concat();
        let inputs = [
            tensor(&[5, 4], pred),
            tensor(&[5, 4], target),
            ints(&[2, 0, 0, 0, -1]),
            ints(&[0, 0, 1, 1, 1]),
            ints(&[2]),
        ];
        let op = SmoothL1Loss { beta: 1.0, ipg: 2, rows_per_image: None };
        let expected = [[0.5, -1.0, 0.0, 0.0], [0.0; 4], [0.0; 4], [0.0; 4], [0.0; 4]].concat();
        assert_eq!(loss_and_grad(&op, &inputs, 4.0), (2.625 / 4.0, expected));
        // Groups of one image: the positive row is one of the two rows of its image, and each image
        // weighs half.
        let loss = run(&SmoothL1Loss { ipg: 1, ..op }, &inputs);
        assert_eq!(loss[0].as_f32()[0], 2.625 / 2.0 / 2.0);
    }
}
