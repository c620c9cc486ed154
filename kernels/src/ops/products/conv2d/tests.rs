//! A case drawn by hand, the epilogue, counts, and what is refused. Sums of many shapes are tested
//! where they are made, in `matmul`.

use super::*;
use crate::Finish;
use crate::case::constant;
use crate::case::hand::{refusal, run, tensor};
use crate::ops::product::{GradInput, GradWeight};

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
    let plain = Conv2d::new(1, 1);
    let without_pad = Conv2d::new(1, 0);
    let rows: [(Conv2d, [usize; 4], &str); 8] = [
        (without_pad.clone(), [2, 3, 3, 7], "w should have shape [K, R, S, 8]"),
        (without_pad.clone(), [2, 5, 5, 8], "a kernel within the padded map, 4 x 4 padded by 0"),
        (Conv2d::new(0, 1), [2, 3, 3, 8], "`stride` should be at least 1"),
        (
            Conv2d { groups: 3, ..plain.clone() },
            [3, 3, 3, 2],
            "`groups` should be a divisor of the channels",
        ),
        (Conv2d { groups: 2, ..plain.clone() }, [2, 3, 3, 8], "[K, R, S, 4] with 1 to 64 taps"),
        (
            Conv2d { dilation: 2, ..Conv2d::new(2, 1) },
            [2, 3, 3, 8],
            "`dilation` should be 1, or more with a stride of 1",
        ),
        (Conv2d { dilation: 2, ..without_pad }, [2, 3, 3, 8], "a kernel within the padded map"),
        (Conv2d { bias: true, ..plain }, [2, 3, 3, 8], "expected 3 inputs, got 2"),
    ];
    for (op, w, says) in rows {
        let inputs = [[1, 4, 4, 8], w];
        let inputs = inputs.map(|shape| tensor(&shape, vec![0.0; shape.iter().product()]));
        let error = refusal(&op, &inputs);
        assert!(error.contains(says), "{error}");
    }
}
