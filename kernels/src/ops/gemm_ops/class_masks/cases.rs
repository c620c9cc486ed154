//! Test and benchmark cases of `class_masks`.

use super::{ClassMasks, ClassMasksGrad};
use crate::Role;
use crate::case::{OpCase, constant, integers, normal};

/// 0 and 1 rows, prime sizes, no rows in use, counts below the capacity, odd channels, more
/// channels than a warp processes at once, and the positives of a COCO image.
pub fn cases() -> Vec<OpCase> {
    let shapes = [
        ([0, 5, 5, 8], 3, 0),
        ([1, 1, 1, 1], 2, 1),
        ([5, 7, 3, 8], 3, 5),
        ([11, 5, 5, 37], 11, 7),
        ([3, 5, 7, 264], 2, 3),
        ([7, 3, 3, 16], 3, 0),
        ([16, 28, 28, 256], 81, 13),
    ];
    let plain = shapes.map(|(shape, classes, count)| case(shape, classes, count));
    let masked = [
        ([5, 7, 3, 8], 3, 5),
        ([11, 5, 5, 37], 11, 7),
        // Several rows per thread in the sum over rows, and warps without a pixel.
        ([67, 1, 3, 16], 3, 67),
    ];
    let with_epilogue = masked.into_iter().flat_map(|(shape, classes, count)| {
        [(true, false), (false, true), (true, true)]
            .map(|(relu, bias_grad)| gradient(&case(shape, classes, count), relu, bias_grad))
    });
    let large = gradient(&case([16, 28, 28, 256], 81, 13), true, true);
    plain.into_iter().chain(with_epilogue).chain([large]).collect()
}

fn case(shape: [usize; 4], classes: usize, count: i32) -> OpCase {
    let [rows, _, _, channels] = shape;
    let scale = 1.0 / (channels as f32).sqrt();
    let inputs = vec![
        normal(Role::Activation, &shape, 1, 1.0),
        normal(Role::Weight, &[classes, 1, 1, channels], 2, scale),
        normal(Role::Master, &[classes], 3, 1.0),
        integers(&[rows], 4, -1, classes as i32),
        constant(&[1], count),
    ];
    let label = format!("{shape:?}, {classes} classes, {count} in use");
    OpCase::new(label, ClassMasks { relu: false }, inputs).grad(&[0, 1, 2])
}

/// The gradient op for the inputs of `case`: `relu` sets dx to 0 where x is not positive, and
/// `bias_grad` adds the output with the sums of dx.
fn gradient(case: &OpCase, relu: bool, bias_grad: bool) -> OpCase {
    let [x, w, _, labels, count] = &case.inputs[..] else { unreachable!("five inputs") };
    let g = normal(Role::Gradient, &x.desc.shape[..3], 5, 1.0);
    let inputs = [&g, x, w, labels, count].map(Clone::clone).to_vec();
    let op = ClassMasksGrad { relu, bias_grad };
    OpCase::new(format!("{op:?}, {}", case.label), op, inputs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::floats;
    use crate::case::hand::run;
    use crate::cpu::HostTensor;
    use crate::ops::bias_grad::BiasGrad;
    use crate::ops::conv2d::Conv2d;
    use crate::ops::gemm_op::{GradInput, GradWeight};
    use crate::ops::layer::Layer;
    use crate::ops::relu_mask::ReluMask;
    use crate::{GradEpilogue, Op};

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
    fn class_masks_are_bit_identical_to_conv() {
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
        let [scale, counted] = [false, true];
        let (layer, epilogue) = (Layer::conv2d(1, 0), GradEpilogue::default());
        let grad_input = GradInput { layer, x: SHAPE.to_vec(), scale, counted, epilogue };
        let filters = w.desc.shape.clone();
        let grad_weight = GradWeight { layer, w: filters, scale, counted };
        let want = [
            one(&grad_input, &[&spread, &w, &count]),
            one(&grad_weight, &[&x, &spread, &count]),
            one(&BiasGrad { counted }, &[&spread, &count]),
        ];
        let used = COUNT as usize * PIXELS * channels; // elements of dx
        for (output, (got, want)) in grads.iter().zip(&want).enumerate() {
            // Numerically equal: zeros may differ in sign.
            let len = if output == 0 { used } else { want.len() };
            assert_eq!(got.as_f32()[..len], want[..len], "output {output}");
        }
        let masked = run(&ClassMasksGrad { relu: true, bias_grad: true }, &inputs);
        let dx = floats(Role::Gradient, &SHAPE, want[0].clone());
        assert_eq!(masked[0].as_f32()[..used], one(&ReluMask, &[&dx, &x])[..used]);
        assert_eq!(masked[1..3], grads[1..]);
        let summed = one(&BiasGrad { counted }, &[&masked[0], &count]);
        assert_eq!(masked[3].as_f32(), summed);
    }
}
