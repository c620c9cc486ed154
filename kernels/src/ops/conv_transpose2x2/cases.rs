//! Cases of `conv_transpose2x2` for the table of ops.

use std::sync::Arc;

use super::{ConvTranspose2x2, ConvTranspose2x2GradInput};
use crate::case::{OpCase, integers, normal};
use crate::ops::relu_mask::one_sided;
use crate::signs::signs_of;
use crate::{Finish, OpRef, Role, TensorDesc};

/// No images, one value, primes, tiles and their neighbours, the large tiles of CUDA, and the small
/// model's mask head.
pub fn cases() -> Vec<OpCase> {
    let rows: [([usize; 4], usize); 7] = [
        ([0, 3, 3, 4], 5),
        ([1, 1, 1, 1], 1),
        ([2, 5, 7, 11], 13),
        ([3, 3, 2, 16], 15),
        ([1, 2, 3, 260], 17),
        ([18, 14, 14, 16], 128),
        ([8, 14, 14, 48], 48),
    ];
    rows.iter()
        .flat_map(|row| [(false, false), (true, true)].map(|flags| (row, flags)))
        .map(|(&(x, k), (relu, counted))| {
            let mut inputs = vec![
                normal(&TensorDesc::new(Role::Activation, &x), 1, 1.0),
                normal(&TensorDesc::new(Role::Weight, &[x[3], 2, 2, k]), 2, 0.2),
                one_sided(k),
            ];
            if counted {
                inputs.push(integers(&[1], 4, 0, x[0] as i32 + 2));
            }
            let label = format!("{x:?} to {k}, relu {relu}, counted {counted}");
            let op = ConvTranspose2x2 { relu, counted, masked: false };
            OpCase::new(label, Arc::new(op), inputs).grad(&[0, 1, 2]).grad_bounds(1e-2, 2e-3)
        })
        .chain(finish_cases())
        .collect()
}

/// The gradient of x, masked, added to another, and both: small, unaligned, in large tiles and in
/// splits.
fn finish_cases() -> Vec<OpCase> {
    let rows: [([usize; 4], usize); 8] = [
        ([2, 5, 7, 11], 13),
        ([3, 3, 2, 16], 24),
        ([18, 14, 14, 128], 16),
        ([1, 2, 3, 8], 264),
        // Of signs from here on.
        ([18, 14, 14, 128], 16),
        ([2, 2, 3, 64], 264),
        ([2, 4, 3, 64], 5),
        ([3, 12, 13, 192], 24),
    ];
    let case = |(i, &(x, k)): (usize, &([usize; 4], usize))| {
        let finish = Finish { other: i != 1 && i != 5, mask: i != 2 };
        let op: OpRef = Arc::new(ConvTranspose2x2GradInput { counted: true, finish });
        let gradient =
            |shape: &[usize], seed| normal(&TensorDesc::new(Role::Gradient, shape), seed, 1.0);
        let mut inputs = vec![
            gradient(&[x[0], 2 * x[1], 2 * x[2], k], 1),
            normal(&TensorDesc::new(Role::Weight, &[x[3], 2, 2, k]), 2, 0.2),
            integers(&[1], 4, 0, x[0] as i32 + 2),
        ];
        inputs.extend((0..finish.inputs() as u32).map(|seed| gradient(&x, 5 + seed)));
        let signs =
            signs_of(&TensorDesc::new(Role::Gradient, &x)).filter(|_| i >= 4 && finish.mask);
        if let (Some(signs), Some(mask)) = (signs, inputs.last_mut()) {
            *mask = integers(&signs.shape, 7, i32::MIN / 2, i32::MAX / 2);
        }
        OpCase::new(format!("{x:?} from {k}, {finish:?}"), op, inputs)
    };
    rows.iter().enumerate().map(case).collect()
}
