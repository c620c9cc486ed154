//! Cases of `refine_rois` for the table of ops.

use super::RefineRois;
use crate::Role;
use crate::case::boxes::boxes;
use crate::case::{OpCase, constant, integers, normal};

/// No row, one, primes, and the RoIs of a training step; a part of them in use.
pub fn cases() -> Vec<OpCase> {
    [(0, 2), (1, 1), (5, 2), (101, 5), (6144, 12)]
        .iter()
        .flat_map(|&shape| [false, true].map(|plus_one| (shape, plus_one)))
        .map(|((m, n), plus_one)| {
            let inputs = vec![
                boxes(&[m, 4], 1, 900.0, 300.0),
                normal(Role::Activation, &[m, 4], 2, 4.0),
                integers(&[m], 3, -1, n as i32),
                constant(&[1], m as i32 - m as i32 / 4),
                integers(&[n, 2], 4, 500, 900),
            ];
            let op = RefineRois { weights: [10.0, 10.0, 5.0, 5.0], plus_one };
            OpCase::new(format!("M {m}, N {n}, plus_one {plus_one}"), op, inputs)
        })
        .collect()
}
