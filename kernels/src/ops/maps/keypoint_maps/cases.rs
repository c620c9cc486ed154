//! Cases of `keypoint_maps` for the table of ops.

use super::KeypointMaps;
use crate::Role;
use crate::case::{OpCase, constant, normal};

/// No RoI, one value, a line, primes, none in use, and a RoI of the keypoint head.
pub fn cases() -> Vec<OpCase> {
    let rows: [([usize; 4], i32); 7] = [
        ([0, 4, 4, 3], 0),
        ([1, 1, 1, 1], 1),
        ([2, 1, 5, 3], 2),
        ([5, 7, 3, 11], 4),
        ([3, 4, 4, 2], 0),
        ([2, 13, 11, 5], 7),
        ([3, 28, 28, 17], 2),
    ];
    rows.iter()
        .map(|&(shape, count)| {
            let x = normal(Role::Activation, &shape, 1, 1.0);
            let label = format!("{shape:?}, {count} in use");
            OpCase::new(label, KeypointMaps, vec![x, constant(&[1], count)]).grad(&[0])
        })
        .collect()
}
