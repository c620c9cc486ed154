//! The loss by hand: positives are summed, all sampled rows divide.

use super::SmoothL1Loss;
use crate::case::hand::{ints, loss_and_grad, run, tensor};

/// Differences 0.5, -3, 0, 0 at beta 1 cost 0.125 + 2.5; four sampled rows divide, of which one is
/// positive. Rows without a positive label may hold anything.
#[test]
fn positives_over_sampled_rows() {
    let pred = [[0.5, -3.0, 1.0, 2.0], [f32::NAN; 4], [7.0; 4], [7.0; 4], [f32::NAN; 4]].concat();
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
    // Each image by itself: the positive is one of two rows, and images count half.
    let loss = run(&SmoothL1Loss { ipg: 1, ..op }, &inputs);
    assert_eq!(loss[0].as_f32()[0], 2.625 / 2.0 / 2.0);
}
