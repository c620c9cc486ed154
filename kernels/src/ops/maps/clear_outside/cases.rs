//! Cases of `clear_outside` for the table of ops.

use super::ClearOutside;
use crate::Role;
use crate::case::{OpCase, integers, normal};

/// No anchors, one cell, primes, a patch wider than its map, channels in vectors and not, and the
/// hidden values of sampled anchors.
pub fn cases() -> Vec<OpCase> {
    vec![
        case(3, &[[7, 5]], [2, 0, 3, 3]),
        case(1, &[[1, 1]], [1, 1, 1, 1]),
        case(2, &[[1, 2], [1, 1]], [1, 5, 5, 7]),
        case(3, &[[7, 11], [5, 3]], [2, 13, 3, 5]),
        case(3, &[[9, 17], [5, 9]], [2, 31, 3, 264]),
        case(3, &[[32, 40], [16, 20], [8, 10], [4, 5], [2, 3]], [2, 256, 3, 48]),
    ]
}

/// `a` anchors of a cell; images, anchors of each, side and channels.
fn case(a: usize, sizes: &[[usize; 2]], [images, b, side, channels]: [usize; 4]) -> OpCase {
    let anchors = sizes.iter().map(|[h, w]| h * w * a).sum::<usize>();
    let inputs = vec![
        normal(Role::Activation, &[images * b, side, side, channels], 1, 1.0),
        integers(&[images, b], 9, -1, anchors as i32),
    ];
    let label = format!("{images}x{b} patches {side}x{side}x{channels} on {sizes:?}");
    let op = ClearOutside { anchors_per_cell: a, level_sizes: sizes.to_vec() };
    OpCase::new(label, op, inputs).grad(&[0])
}
