//! Cases of `conv_transpose2x2` for the table of ops.

use std::sync::Arc;

use super::ConvTranspose2x2;
use crate::case::{OpCase, integers, normal};
use crate::ops::relu_mask::one_sided;
use crate::{Role, TensorDesc};

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
        .collect()
}
