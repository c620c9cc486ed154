//! Test and benchmark cases of `conv_transpose`.

use super::ConvTranspose;
use crate::case::{OpCase, constant, integers, normal};
use crate::ops::gemm_op::GradInput;
use crate::ops::layer::Layer;
use crate::ops::relu_mask::one_sided;
use crate::signs::signs_of;
use crate::{GradEpilogue, Role, TensorDesc};

/// No images, one value, prime sizes, sizes near the tile size, CUDA's large tiles, and the mask
/// head of the small model.
pub fn cases() -> Vec<OpCase> {
    let doubled: [([usize; 4], usize); 9] = [
        ([0, 3, 3, 4], 5),
        ([1, 1, 1, 1], 1),
        ([2, 5, 7, 11], 13),
        ([3, 3, 2, 16], 15),
        ([1, 2, 3, 520], 17),
        ([18, 14, 14, 16], 128),
        ([8, 14, 14, 48], 48),
        // Full tiles and tails, for large tiles and for padded columns.
        ([3, 8, 9, 8], 136),
        ([3, 8, 9, 5], 72),
    ];
    // Overlapping output blocks, as in the keypoint head, unaligned and aligned.
    let overlapping: [([usize; 4], usize); 5] = [
        ([0, 2, 2, 4], 3),
        ([1, 1, 1, 1], 1),
        ([2, 5, 3, 11], 7),
        ([3, 14, 14, 32], 17),
        ([3, 8, 9, 64], 24),
    ];
    let doubled = doubled.iter().map(|row| (row, 0));
    let overlapping = overlapping.iter().map(|row| (row, 1));
    doubled
        .chain(overlapping)
        .flat_map(|row| [(false, false), (true, true)].map(|flags| (row, flags)))
        .map(|((&(x, k), pad), (relu, counted))| {
            let kernel = 2 + 2 * pad;
            let mut inputs = vec![
                normal(Role::Activation, &x, 1, 1.0),
                normal(Role::Weight, &[x[3], kernel, kernel, k], 2, 0.2),
                one_sided(k),
            ];
            if counted {
                inputs.push(integers(&[1], 4, 0, x[0] as i32 + 2));
            }
            let label = format!("{x:?} to {k}, pad {pad}, relu {relu}, counted {counted}");
            let op = ConvTranspose { pad, relu, counted, masked: false };
            OpCase::new(label, op, inputs).grad(&[0, 1, 2]).grad_bounds(1e-2, 2e-3)
        })
        .chain(epilogue_cases())
        .collect()
}

/// The gradient of x with a mask, with an added gradient, and with both: small, unaligned, with
/// large tiles, and with split-k.
fn epilogue_cases() -> Vec<OpCase> {
    let rows: [([usize; 4], usize, [bool; 3]); 16] = [
        // The flags are: added gradient, mask, mask given as signs.
        ([2, 5, 7, 11], 13, [true, true, false]),
        ([3, 3, 2, 16], 24, [false, true, false]),
        ([18, 14, 14, 128], 16, [true, false, false]),
        ([1, 2, 3, 8], 264, [true, true, false]),
        ([18, 14, 14, 128], 16, [true, true, true]),
        ([2, 2, 3, 64], 264, [false, true, true]),
        ([2, 4, 3, 64], 5, [true, true, true]),
        ([3, 12, 13, 192], 24, [true, true, true]),
        // Full tiles, tails, and columns that are not a multiple of a chunk; then with split-k.
        ([3, 8, 9, 136], 8, [true, true, false]),
        ([3, 8, 9, 136], 8, [false, true, false]),
        ([3, 8, 9, 192], 8, [false, true, true]),
        ([3, 8, 9, 129], 8, [true, true, false]),
        ([3, 8, 9, 129], 8, [false, true, false]),
        ([1, 5, 13, 72], 384, [true, true, false]),
        ([1, 5, 13, 65], 384, [true, true, false]),
        ([1, 5, 13, 65], 384, [false, true, false]),
    ];
    let case = |&(x, k, [other, mask, of_signs]): &([usize; 4], usize, [bool; 3])| {
        let epilogue = GradEpilogue { other, mask };
        let (layer, scale) = (Layer::ConvTranspose { pad: 0 }, false);
        let op = GradInput { layer, x: x.to_vec(), scale, counted: true, epilogue };
        let gradient = |shape: &[usize], seed| normal(Role::Gradient, shape, seed, 1.0);
        let mut inputs = vec![
            gradient(&[x[0], 2 * x[1], 2 * x[2], k], 1),
            normal(Role::Weight, &[x[3], 2, 2, k], 2, 0.2),
            constant(&[1], x[0].div_ceil(2) as i32),
        ];
        inputs.extend((0..epilogue.inputs() as u32).map(|seed| gradient(&x, 5 + seed)));
        let signs = signs_of(&TensorDesc::new(Role::Gradient, &x)).filter(|_| of_signs);
        if let (Some(signs), Some(mask)) = (signs, inputs.last_mut()) {
            *mask = integers(&signs.shape, 7, i32::MIN / 2, i32::MAX / 2);
        }
        OpCase::new(format!("{x:?} from {k}, {epilogue:?}, signs {of_signs}"), op, inputs)
    };
    rows.iter().map(case).collect()
}
