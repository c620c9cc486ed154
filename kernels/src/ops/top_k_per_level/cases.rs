//! Cases of `top_k_per_level` for the table of ops.

use std::sync::Arc;

use super::TopKPerLevel;
use crate::case::{OpCase, normal};
use crate::{Role, TensorDesc};

/// Height and width of each level.
type Maps<'a> = &'a [(usize, usize)];

/// No image, empty levels, k below, at and above a level's size, and a training step's levels.
pub fn cases() -> Vec<OpCase> {
    let shapes: [(usize, usize, Maps<'static>); 6] = [
        (4, 0, &[(2, 3)]),
        (4, 1, &[(0, 3), (1, 1)]),
        (0, 2, &[(5, 7)]),
        (105, 2, &[(5, 7), (11, 13)]),
        (104, 2, &[(5, 7), (1, 1)]),
        (2000, 2, &[(200, 336), (100, 168), (50, 84), (25, 42), (13, 21)]),
    ];
    shapes
        .iter()
        .map(|&(k, n, maps)| {
            let logits = |(i, &(h, w)): (usize, &(usize, usize))| {
                normal(&TensorDesc::new(Role::Activation, &[n, h, w, 3]), i as u32, 2.0)
            };
            let inputs = maps.iter().enumerate().map(logits).collect();
            OpCase::new(format!("k {k}, N {n}, {maps:?}"), Arc::new(TopKPerLevel { k }), inputs)
        })
        .collect()
}
