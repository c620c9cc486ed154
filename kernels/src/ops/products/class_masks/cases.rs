//! Cases of `class_masks` for the table of ops.

use super::{ClassMasks, ClassMasksGrad};
use crate::Role;
use crate::case::{OpCase, constant, integers, normal};

/// Rows 0, 1, primes, none in use, counts below the capacity, odd channels and more than a warp
/// holds, and positives of a COCO image.
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
        // Rows for each thread of a sum over them, and warps without a pixel.
        ([67, 1, 3, 16], 3, 67),
    ];
    let finished = masked.into_iter().flat_map(|(shape, classes, count)| {
        [(true, false), (false, true), (true, true)]
            .map(|(relu, bias_grad)| gradient(&case(shape, classes, count), relu, bias_grad))
    });
    let large = gradient(&case([16, 28, 28, 256], 81, 13), true, true);
    plain.into_iter().chain(finished).chain([large]).collect()
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

/// The gradient only: masked where x is not positive, with the gradient of a bias of x.
fn gradient(case: &OpCase, relu: bool, bias_grad: bool) -> OpCase {
    let [x, w, _, labels, count] = &case.inputs[..] else { unreachable!("five inputs") };
    let g = normal(Role::Gradient, &x.desc.shape[..3], 5, 1.0);
    let inputs = [&g, x, w, labels, count].map(Clone::clone).to_vec();
    let op = ClassMasksGrad { relu, bias_grad };
    OpCase::new(format!("{op:?}, {}", case.label), op, inputs)
}
