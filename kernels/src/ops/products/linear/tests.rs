//! A case drawn by hand, and what rows past the count may do.

use super::*;
use crate::Finish;
use crate::case::constant;
use crate::case::hand::{refusal, run, tensor};
use crate::ops::product::{GradInput, GradWeight};

#[test]
fn two_rows_by_hand() {
    let x = tensor(&[2, 3], [1.0, 2.0, 3.0, -1.0, 0.0, 1.0]);
    let w = tensor(&[2, 3], [1.0, 1.0, 1.0, 0.5, 0.0, -2.0]);
    let inputs = [x, w, tensor(&[2], [10.0, 0.0])];
    let y = run(&Linear { relu: true, counted: false }, &inputs);
    assert_eq!(y[0].as_f32(), [16.0, 0.0, 10.0, 0.0]);
}

/// Rows past the count hold NaN and leave no trace in any output.
#[test]
fn rows_past_the_count_are_not_read() {
    let nan = f32::NAN;
    let x = tensor(&[3, 2], [1.0, 2.0, nan, nan, nan, nan]);
    let g = tensor(&[3, 1], [3.0, nan, nan]);
    let w = tensor(&[1, 2], [4.0, 5.0]);
    let linear = Linear { relu: false, counted: true };
    let y = run(&linear, &[x.clone(), w.clone(), tensor(&[1], [0.5]), constant(&[1], 1)]);
    assert_eq!(y[0].as_f32(), [14.5, 0.0, 0.0]);
    let (layer, scale, finish) = (Layer::Linear, false, Finish::default());
    let op = GradInput { layer, x: vec![3, 2], scale, counted: true, finish };
    let dx = run(&op, &[g.clone(), w, constant(&[1], 1)]);
    assert_eq!(dx[0].as_f32(), [12.0, 15.0, 0.0, 0.0, 0.0, 0.0]);
    let op = GradWeight { layer, w: vec![1, 2], scale, counted: true, bias_grad: true };
    let dw = run(&op, &[x, g, constant(&[1], 1)]);
    assert_eq!([dw[0].as_f32(), dw[1].as_f32()], [&[3.0, 6.0][..], &[3.0]]);
}

#[test]
fn no_rows_give_gradients_of_zero() {
    let (x, g) = (tensor(&[2, 2], [f32::NAN; 4]), tensor(&[2, 1], [f32::NAN; 2]));
    let (layer, w) = (Layer::Linear, vec![1, 2]);
    let op = GradWeight { layer, w, scale: false, counted: true, bias_grad: false };
    for value in [0, -3] {
        let dw = run(&op, &[x.clone(), g.clone(), constant(&[1], value)]);
        assert_eq!(dw[0].as_f32(), [0.0, 0.0]);
    }
}

#[test]
fn rows_of_other_length_are_refused() {
    let inputs = [&[2, 7, 7, 4][..], &[3, 195], &[3]]
        .map(|shape| tensor(shape, vec![0.0; shape.iter().product()]));
    let error = refusal(&Linear { relu: false, counted: false }, &inputs);
    assert!(error.contains("196 elements per row") && error.contains("[3, 195]"), "{error}");
}
