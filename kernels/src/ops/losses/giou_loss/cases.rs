//! Test and benchmark cases of `giou_loss`.

use super::GiouLoss;
use crate::Role;
use crate::case::boxes::in_order;
use crate::case::{OpCase, constant, integers, normal, uniform};
use crate::cpu::HostTensor;

/// 0 and 1 rows, prime row counts, row counts near the block size of the sum, and the RoIs of 2
/// images.
pub fn cases() -> Vec<OpCase> {
    let rows = [(0, 1), (1, 1), (7, 2), (13, 5), (255, 3), (256, 3), (257, 3), (1024, 2)];
    rows.iter().flat_map(|&(rows, images)| [1, 2].map(|ipg| case(rows, images, ipg))).collect()
}

fn case(rows: usize, images: usize, ipg: usize) -> OpCase {
    let inputs = vec![
        normal(Role::Activation, &[rows, 4], 1, 1.0),
        boxes(rows, 2),
        boxes(rows, 3),
        integers(&[rows], 4, -1, 3),
        in_order(rows, images),
        constant(&[1], images as i32),
    ];
    let op = GiouLoss { weights: [10.0, 10.0, 5.0, 5.0], ipg };
    let label = format!("{rows} rows of {images} images, {ipg} a group");
    // The derivative jumps where corners cross the target's edges: with a smaller step, fewer
    // corners cross them.
    OpCase::new(label, op, inputs).grad(&[0]).grad_bounds(2e-3, 1e-2)
}

/// Boxes with corners in 0..50 and 50..100.
fn boxes(rows: usize, seed: u32) -> HostTensor {
    let mut boxes = uniform(Role::Box, &[rows, 4], seed, 0.0, 50.0);
    for (i, v) in boxes.as_f32_mut().iter_mut().enumerate() {
        *v += if i % 4 < 2 { 0.0 } else { 50.0 };
    }
    boxes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::hand::{ints, loss_and_grad, tensor};

    fn boxes(rows: &[[f32; 4]]) -> HostTensor {
        tensor(&[rows.len(), 4], rows.concat())
    }

    /// dx = 20/10 moves a unit square by 2, which leaves a gap of 1 to its target at 0, so the loss
    /// is 4/3. Three rows are sampled, one of them is positive.
    #[test]
    fn giou_of_disjoint_square_matches_hand_computed_value() {
        let square = [0.0, 0.0, 1.0, 1.0];
        let inputs = [
            boxes(&[[20.0, 0.0, 0.0, 0.0], [f32::NAN; 4], [f32::NAN; 4], [f32::NAN; 4]]),
            boxes(&[square; 4]),
            boxes(&[square; 4]),
            ints(&[1, 0, 0, -1]),
            ints(&[0; 4]),
            ints(&[1]),
        ];
        let weights = [10.0, 10.0, 5.0, 5.0];
        let (loss, grad) = loss_and_grad(&GiouLoss { weights, ipg: 1 }, &inputs, 3.0);
        assert!((loss - 4.0 / 9.0).abs() < 1e-6, "{loss}");
        // GIoU = -1 + 2 / hull, hull = 1 + 2: moving by 1/10 per unit of dx changes the loss by
        // 2/90.
        assert!((grad[0] - 2.0 / 90.0).abs() < 1e-6, "{grad:?}");
        assert!(grad[4..].iter().all(|&g| g == 0.0));
    }
}
