//! Test and benchmark cases of `max_pool`.

use super::MaxPool;
use crate::case::OpCase;
use crate::cpu::HostTensor;
use crate::{Role, TensorDesc};

/// No images, one value, prime sizes, the stem's pool, P6, and the stem of a training step; then
/// without `argmax`.
pub fn cases() -> Vec<OpCase> {
    let rows: [([usize; 4], [usize; 3]); 8] = [
        ([0, 4, 4, 3], [3, 2, 1]),
        ([1, 1, 1, 1], [1, 2, 0]),
        ([2, 5, 7, 11], [3, 2, 1]),
        ([2, 13, 11, 5], [1, 2, 0]),
        ([2, 13, 11, 8], [1, 2, 0]),
        ([1, 7, 5, 3], [2, 1, 1]),
        ([1, 8, 8, 16], [5, 3, 2]),
        ([1, 100, 168, 64], [3, 2, 1]),
    ];
    rows.iter()
        .map(|&(shape, [kernel, stride, pad])| {
            let x = distinct(shape);
            let op = MaxPool { kernel, stride, pad, argmax: true };
            OpCase::new(format!("{shape:?} kernel {kernel} stride {stride}"), op, vec![x])
                .grad(&[0])
                .grad_bounds(1e-2, 2e-3)
        })
        .chain([[2, 5, 7, 11], [1, 7, 9, 16]].map(|shape| {
            let op = MaxPool { kernel: 3, stride: 2, pad: 1, argmax: false };
            OpCase::new(format!("{shape:?} without argmax"), op, vec![distinct(shape)])
        }))
        .collect()
}

/// Values that differ by at least a quarter within every 8 x 8 window of a channel, so that a
/// finite-difference step does not move a maximum to a different position. Multiplication by an odd
/// factor permutes the residues modulo 64.
fn distinct(shape: [usize; 4]) -> HostTensor {
    let [_, h, w, c] = shape;
    let desc = TensorDesc::new(Role::Activation, &shape);
    let value = |i: usize| {
        let (channel, column, row) = (i % c, i / c % w, i / c / w % h);
        let place = row % 8 * 8 + column % 8;
        ((place * 37 + channel * 11) % 64) as f32 / 4.0 - 8.0
    };
    let values = (0..desc.len()).map(value).collect();
    HostTensor::f32(desc, values)
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use super::*;
    use crate::Op;
    use crate::case::hand::{run, tensor};

    #[test]
    fn max_pool_tie_goes_to_first_and_nan_propagates() {
        let pool = MaxPool { kernel: 2, stride: 2, pad: 0, argmax: true };
        let x = tensor(&[1, 2, 4, 1], [5.0, 5.0, 1.0, f32::NAN, 5.0, 5.0, 2.0, 3.0]);
        let out = run(&pool, &[x]);
        assert_eq!(out[1].as_i32(), [0, 3]);
        assert!(out[0].as_f32()[1].is_nan());
        let lowest = tensor(&[1, 1, 2, 1], [f32::NEG_INFINITY; 2]);
        let pool = MaxPool { kernel: 1, stride: 1, pad: 0, argmax: true };
        assert_eq!(run(&pool, &[lowest])[1].as_i32(), [0, 1]);
    }

    #[test]
    fn max_pool_padding_as_large_as_window_is_rejected() {
        let x = TensorDesc::new(Role::Activation, &[1, 4, 4, 1]);
        let error = MaxPool { kernel: 2, stride: 2, pad: 2, argmax: true }.infer(&[x], &[]);
        assert!(error.expect_err("pad 2 of kernel 2").to_string().contains("at most kernel / 2"));
    }
}
