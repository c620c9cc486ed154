//! A case drawn by hand, the epilogue, counts, and what is refused. Sums of many shapes are tested
//! where they are made, in `matmul`.

use super::*;
use crate::case::constant;
use crate::case::hand::{run, tensor};
use crate::ops::product::{GradInput, GradWeight};
use crate::{Finish, Op, Role, TensorDesc};

/// A 3x3 of ones sums the neighbours; the corner of a 2x3 map has four, the middle six.
#[test]
fn sum_of_neighbours_by_hand() {
    let x = tensor(&[1, 2, 3, 1], [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]);
    let y = run(&Conv2d::new(1, 1), &[x, tensor(&[1, 3, 3, 1], [1.0; 9])]);
    assert_eq!(y[0].as_f32(), [27.0, 63.0, 54.0, 27.0, 63.0, 54.0]);
}

/// The kernel is not flipped: its top left entry meets the pixel above and to the left.
#[test]
fn cross_correlation_not_convolution() {
    let mut kernel = [0.0; 9];
    kernel[0] = 1.0;
    let x = tensor(&[1, 2, 2, 1], [1.0, 2.0, 3.0, 4.0]);
    let y = run(&Conv2d::new(1, 1), &[x, tensor(&[1, 3, 3, 1], kernel)]);
    assert_eq!(y[0].as_f32(), [0.0, 0.0, 0.0, 1.0]);
}

#[test]
fn epilogue_in_its_order() {
    let op = Conv2d { scale: true, bias: true, residual: true, relu: true, ..Conv2d::new(1, 0) };
    let inputs = [
        tensor(&[1, 1, 2, 1], [1.0, -1.0]),
        tensor(&[2, 1, 1, 1], [2.0, 3.0]),
        tensor(&[2], [10.0, 100.0]),
        tensor(&[2], [1.0, 2.0]),
        tensor(&[1, 1, 2, 2], [0.5, 0.25, 0.5, 400.0]),
    ];
    let y = run(&op, &inputs);
    assert_eq!(y[0].as_f32(), [21.5, 302.25, 0.0, 102.0]);
}

/// Images past the count hold NaN and leave no trace in any output.
#[test]
fn images_past_the_count_are_not_read() {
    let counted = true;
    let count = constant(&[1], 1);
    let x = tensor(&[2, 1, 1, 1], [3.0, f32::NAN]);
    let g = tensor(&[2, 1, 1, 1], [5.0, f32::NAN]);
    let w = tensor(&[1, 1, 1, 1], [7.0]);
    let op = Conv2d { counted, ..Conv2d::new(1, 0) };
    let y = run(&op, &[x.clone(), w.clone(), count.clone()]);
    assert_eq!(y[0].as_f32(), [21.0, 0.0]);
    let (layer, scale, finish) = (Layer::conv2d(1, 0), false, Finish::default());
    let op = GradInput { layer, x: x.desc.shape.clone(), scale, counted, finish };
    let dx = run(&op, &[g.clone(), w.clone(), count.clone()]);
    assert_eq!(dx[0].as_f32(), [35.0, 0.0]);
    let op = GradWeight { layer, w: w.desc.shape, scale, counted, bias_grad: true };
    let dw = run(&op, &[x, g, count]);
    assert_eq!([dw[0].as_f32(), dw[1].as_f32()], [[15.0], [5.0]]);
}

#[test]
fn misfits_are_refused_by_name() {
    let desc = |shape: &[usize]| TensorDesc::new(Role::Activation, shape);
    let (x, w) = (desc(&[1, 4, 4, 8]), desc(&[2, 3, 3, 8]));
    let refuse = |op: Conv2d, inputs: &[TensorDesc]| {
        op.infer(inputs, &[]).expect_err("shapes that do not fit").to_string()
    };
    let error = refuse(Conv2d::new(1, 0), &[x.clone(), desc(&[2, 3, 3, 7])]);
    assert!(error.contains("w should have shape [K, R, S, 8]"), "{error}");
    let error = refuse(Conv2d::new(1, 0), &[x.clone(), desc(&[2, 5, 5, 8])]);
    assert!(error.contains("a kernel within the padded map, 4 x 4 padded by 0"), "{error}");
    let error = refuse(Conv2d::new(0, 1), &[x.clone(), w.clone()]);
    assert!(error.contains("`stride` should be at least 1"), "{error}");
    let grouped = Conv2d { groups: 3, ..Conv2d::new(1, 1) };
    let error = refuse(grouped, &[x.clone(), desc(&[3, 3, 3, 2])]);
    assert!(error.contains("`groups` should be a divisor of the channels"), "{error}");
    let grouped = Conv2d { groups: 2, ..Conv2d::new(1, 1) };
    let error = refuse(grouped, &[x.clone(), w.clone()]);
    assert!(error.contains("[K, R, S, 4] with 1 to 64 taps"), "{error}");
    let dilated = Conv2d { dilation: 2, ..Conv2d::new(2, 1) };
    let error = refuse(dilated, &[x.clone(), w.clone()]);
    assert!(error.contains("`dilation` should be 1, or more with a stride of 1"), "{error}");
    let dilated = Conv2d { dilation: 2, ..Conv2d::new(1, 0) };
    let error = refuse(dilated, &[x.clone(), w.clone()]);
    assert!(error.contains("a kernel within the padded map"), "{error}");
    let error = refuse(Conv2d { bias: true, ..Conv2d::new(1, 1) }, &[x, w]);
    assert!(error.contains("expected 3 inputs, got 2"), "{error}");
}
