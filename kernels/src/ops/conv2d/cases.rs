//! Cases of `conv2d` for the table of ops.

use std::sync::Arc;

use super::Conv2d;
use crate::case::{OpCase, integers, normal, uniform};
use crate::matmul::out_extent;
use crate::ops::relu_mask::one_sided;
use crate::{Role, TensorDesc};

/// No images, one value, primes, every kernel of the model, tiles and their neighbours, more
/// channels than a block of the reduction, a stride larger than the kernel; then FPN's 3x3 at C5.
pub fn cases() -> Vec<OpCase> {
    let shapes: [([usize; 4], [usize; 4]); 10] = [
        ([0, 5, 5, 3], [4, 3, 1, 1]),
        ([1, 1, 1, 1], [1, 1, 1, 0]),
        ([2, 5, 7, 11], [13, 1, 1, 0]),
        ([2, 5, 7, 11], [13, 1, 2, 0]),
        ([2, 7, 5, 13], [17, 3, 1, 1]),
        ([2, 7, 6, 16], [15, 3, 2, 1]),
        ([1, 11, 13, 3], [16, 7, 2, 3]),
        ([1, 5, 5, 4], [5, 2, 3, 1]),
        ([1, 3, 3, 270], [33, 3, 1, 1]),
        ([1, 7, 11, 48], [48, 3, 1, 1]),
    ];
    let flags = [Conv2d::new(1, 0), Conv2d { bias: true, relu: true, ..Conv2d::new(1, 0) }];
    let all = Conv2d { scale: true, residual: true, ..flags[1].clone() };
    let counted = Conv2d { counted: true, ..flags[1].clone() };
    let flags = [&flags[..], &[all, counted]].concat();
    let real = ([1, 25, 42, 256], [256, 3, 1, 1]);
    shapes
        .iter()
        .flat_map(|shape| flags.iter().map(move |flags| (shape, flags)))
        .map(|(&(x, w), flags)| case(x, w, flags.clone(), true))
        .chain([case(real.0, real.1, flags[1].clone(), false)])
        .collect()
}

fn case(
    x: [usize; 4],
    [k, kernel, stride, pad]: [usize; 4],
    flags: Conv2d,
    gradients: bool,
) -> OpCase {
    let op = Conv2d { stride, pad, ..flags };
    let [p, q] = [x[1], x[2]].map(|e| out_extent(e, kernel, stride, pad).unwrap_or(0));
    let fan_in = (kernel * kernel * x[3]) as f32;
    let weight = TensorDesc::new(Role::Weight, &[k, kernel, kernel, x[3]]);
    let channel = TensorDesc::new(Role::Master, &[k]);
    let mut inputs = vec![
        normal(&TensorDesc::new(Role::Activation, &x), 1, 1.0),
        normal(&weight, 2, 1.0 / fan_in.sqrt()),
    ];
    let mut checked = vec![0, 1];
    if op.scale {
        inputs.push(uniform(&channel, 3, 0.5, 1.5));
    }
    if op.bias {
        checked.push(inputs.len());
        inputs.push(one_sided(k));
    }
    if op.residual {
        checked.push(inputs.len());
        let y = TensorDesc::new(Role::Activation, &[x[0], p, q, k]);
        inputs.push(normal(&y, 5, 1.0));
    }
    if op.counted {
        inputs.push(integers(&[1], 6, 0, x[0] as i32 + 2));
    }
    let label = format!("{x:?} to {k} by {kernel}, {op:?}");
    let checked = if gradients { checked } else { vec![] };
    OpCase::new(label, Arc::new(op), inputs).grad(&checked).grad_bounds(1e-2, 2e-3)
}
