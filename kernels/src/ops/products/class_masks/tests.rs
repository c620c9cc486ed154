//! The class's channel is that of the convolution with all filters, bit for bit.

use super::{ClassMasks, ClassMasksGrad};
use crate::case::hand::run;
use crate::case::{constant, floats, integers, normal};
use crate::cpu::HostTensor;
use crate::ops::bias_grad::BiasGrad;
use crate::ops::conv2d::Conv2d;
use crate::ops::layer::Layer;
use crate::ops::product::{GradInput, GradWeight};
use crate::ops::relu_mask::ReluMask;
use crate::{Finish, Op, Role};

const SHAPE: [usize; 4] = [13, 11, 7, 37];
const PIXELS: usize = 11 * 7;
const CLASSES: usize = 5;
const COUNT: i32 = 11;

fn one(op: &impl Op, inputs: &[&HostTensor]) -> Vec<f32> {
    let inputs: Vec<_> = inputs.iter().map(|t| (*t).clone()).collect();
    run(op, &inputs)[0].as_f32().to_vec()
}

/// Rows of 77 positions: blocks of 256 positions and groups of 64 end within rows.
#[test]
fn bits_are_those_of_the_convolution() {
    let [rows, height, width, channels] = SHAPE;
    let x = normal(Role::Activation, &SHAPE, 1, 1.0);
    let w = normal(Role::Weight, &[CLASSES, 1, 1, channels], 2, 1.0);
    let b = normal(Role::Master, &[CLASSES], 3, 1.0);
    let labels = integers(&[rows], 4, 0, CLASSES as i32);
    let count = constant(&[1], COUNT);
    let conv = Conv2d { bias: true, counted: true, ..Conv2d::new(1, 0) };
    let class = |row: usize| match labels.as_i32()[row] {
        label if label > 0 && row < COUNT as usize => Some(label as usize),
        _ => None,
    };
    let all = one(&conv, &[&x, &w, &b, &count]);
    let own = one(&ClassMasks { relu: false }, &[&x, &w, &b, &labels, &count]);
    for (i, logit) in own.iter().enumerate() {
        let want = class(i / PIXELS).map_or(0.0, |class| all[i * CLASSES + class]);
        assert_eq!(logit.to_bits(), want.to_bits(), "position {i}");
    }

    let g = normal(Role::Gradient, &[rows, height, width], 5, 1.0);
    let mut spread = vec![0.0; g.as_f32().len() * CLASSES];
    for (i, g) in g.as_f32().iter().enumerate() {
        if let Some(class) = class(i / PIXELS) {
            spread[i * CLASSES + class] = *g;
        }
    }
    let spread = floats(Role::Gradient, &[rows, height, width, CLASSES], spread);
    let inputs = [&g, &x, &w, &labels, &count].map(Clone::clone);
    let grads = run(&ClassMasksGrad { relu: false, bias_grad: false }, &inputs);
    let [scale, counted, bias_grad] = [false, true, false];
    let (layer, finish) = (Layer::conv2d(1, 0), Finish::default());
    let grad_input = GradInput { layer, x: SHAPE.to_vec(), scale, counted, finish };
    let filters = w.desc.shape.clone();
    let grad_weight = GradWeight { layer, w: filters, scale, counted, bias_grad };
    let want = [
        one(&grad_input, &[&spread, &w, &count]),
        one(&grad_weight, &[&x, &spread, &count]),
        one(&BiasGrad { counted }, &[&spread, &count]),
    ];
    for (output, (got, want)) in grads.iter().zip(&want).enumerate() {
        // Equal as numbers: zeros may differ in sign.
        assert_eq!(got.as_f32(), want, "output {output}");
    }
    let masked = run(&ClassMasksGrad { relu: true, bias_grad: true }, &inputs);
    let dx = floats(Role::Gradient, &SHAPE, want[0].clone());
    assert_eq!(masked[0].as_f32(), one(&ReluMask, &[&dx, &x]));
    assert_eq!(masked[1..3], grads[1..]);
    let summed = one(&BiasGrad { counted }, &[&masked[0], &count]);
    assert_eq!(masked[3].as_f32(), summed);
}
