//! Cases of `mean_positions` for the table of ops.

use super::MeanPositions;
use crate::Role;
use crate::case::{OpCase, constant, normal};

/// No row, one value, primes, none in use, and RoIs of a C4 head.
pub fn cases() -> Vec<OpCase> {
    let rows: [([usize; 4], i32); 6] = [
        ([0, 7, 7, 3], 0),
        ([1, 1, 1, 1], 1),
        ([5, 3, 7, 11], 4),
        ([3, 2, 2, 257], 0),
        ([2, 1, 5, 8], 9),
        ([16, 7, 7, 64], 13),
    ];
    rows.iter()
        .map(|&(shape, count)| {
            let x = normal(Role::Activation, &shape, 1, 1.0);
            let label = format!("{shape:?}, {count} in use");
            OpCase::new(label, MeanPositions, vec![x, constant(&[1], count)]).grad(&[0])
        })
        .collect()
}
