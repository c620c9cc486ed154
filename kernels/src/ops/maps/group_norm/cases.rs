//! Cases of `group_norm` for the table of ops.

use super::GroupNorm;
use crate::Role;
use crate::case::{OpCase, normal, uniform};
use crate::ops::relu_mask::one_sided;

/// No images, one value, primes, a chunk of positions and its neighbours, one group a channel,
/// a map of a small model, and more channels than a block takes at once.
pub fn cases() -> Vec<OpCase> {
    let rows: [([usize; 4], usize); 9] = [
        ([0, 3, 3, 4], 2),
        ([1, 1, 1, 2], 1),
        ([2, 5, 7, 6], 3),
        ([1, 127, 1, 4], 2),
        ([1, 8, 16, 4], 4),
        ([3, 43, 3, 10], 1),
        ([1, 11, 13, 11], 11),
        ([2, 32, 32, 48], 8),
        ([2, 9, 15, 272], 17),
    ];
    rows.iter()
        .flat_map(|row| [(false, false), (true, true)].map(|flags| (row, flags)))
        .map(|(&(shape, groups), (relu, residual))| {
            let mut inputs = vec![
                normal(Role::Activation, &shape, 1, 2.0),
                uniform(Role::Master, &shape[3..], 2, 0.5, 1.5),
                one_sided(shape[3]),
            ];
            if residual {
                inputs.push(normal(Role::Activation, &shape, 4, 1.0));
            }
            let checked: &[usize] = if residual { &[0, 1, 2, 3] } else { &[0, 1, 2] };
            let op = GroupNorm { groups, eps: 0.1, relu, residual };
            OpCase::new(format!("{shape:?} {groups} groups, relu {relu}"), op, inputs)
                .grad(checked)
                .grad_bounds(1e-2, 2e-3)
        })
        .collect()
}
