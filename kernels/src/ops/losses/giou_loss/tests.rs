//! The loss by hand: decoding and weights around the plain formula.

use super::GiouLoss;
use crate::case::hand::{ints, loss_and_grad, tensor};
use crate::cpu::HostTensor;

fn boxes(rows: &[[f32; 4]]) -> HostTensor {
    tensor(&[rows.len(), 4], rows.concat())
}

/// dx = 20/10 moves a unit square by two: a gap of one to its target at 0, which costs 4/3. Three
/// rows are sampled, one is positive.
#[test]
fn a_square_apart_by_hand() {
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
    // GIoU = -1 + 2 / hull, hull = 1 + 2: moving by 1/10 a unit of dx costs 2/9 of that.
    assert!((grad[0] - 2.0 / 90.0).abs() < 1e-6, "{grad:?}");
    assert!(grad[4..].iter().all(|&g| g == 0.0));
}
