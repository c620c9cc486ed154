//! Cases of `bce_loss` for the table of ops.

use super::BceLoss;
use crate::Role;
use crate::case::boxes::in_order;
use crate::case::{OpCase, constant, integers, normal};

/// Rows 0, 1, primes, a block of the sum and its neighbours, and the samples of 12 images.
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

/// More groups than the CUDA kernels count at a time, images that are not in use, and rows of none.
fn many_groups(rows_per_image: Option<usize>) -> OpCase {
    let mut case = case(2053, 2053, 1, rows_per_image);
    case.label = "many groups, and rows of no image".into();
    if rows_per_image.is_some() {
        case.label += ", over a stated number";
    }
    case.inputs[2] = integers(&[2053], 9, -1, 2 * 1030);
    case
}
