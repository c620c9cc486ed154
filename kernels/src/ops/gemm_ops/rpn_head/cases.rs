//! Test and benchmark cases of `rpn_head`. The op has no gradient.

use super::{HIDDEN_ROUNDING, RpnHead};
use crate::Role;
use crate::case::{ORDER_FLOOR, OpCase, normal};

/// No images, one position, one level, small tiles, one and several across the filters, large
/// tiles, one and two across the filters, channels that are not a multiple of a k-block, and one to
/// three anchors.
pub fn cases() -> Vec<OpCase> {
    type Row<'a> = (usize, &'a [[usize; 2]], [usize; 2], usize);
    let rows: [Row<'_>; 6] = [
        (0, &[[5, 3], [3, 2]], [8, 8], 3),
        (1, &[[1, 1]], [8, 16], 1),
        (2, &[[7, 9], [4, 5], [2, 3], [1, 2]], [16, 24], 3),
        (3, &[[13, 11], [7, 6]], [40, 72], 2),
        (2, &[[17, 19], [9, 10], [5, 5], [3, 3], [2, 2]], [64, 256], 3),
        (1, &[[16, 16]], [24, 136], 3),
    ];
    rows.into_iter().map(case).collect()
}

fn case((images, sizes, [c, k], anchors): (usize, &[[usize; 2]], [usize; 2], usize)) -> OpCase {
    let pair = |shape: [usize; 4], seed: u32| {
        let scale = 1.0 / (shape[1..].iter().product::<usize>() as f32).sqrt();
        let bias = normal(Role::Master, &shape[..1], seed + 1, 1.0);
        [normal(Role::Weight, &shape, seed, scale), bias]
    };
    let map = |(level, [height, width]): (usize, &[usize; 2])| {
        normal(Role::Activation, &[images, *height, *width, c], 10 + level as u32, 1.0)
    };
    let pairs =
        [pair([k, 3, 3, c], 1), pair([anchors, 1, 1, k], 3), pair([4 * anchors, 1, 1, k], 5)];
    let inputs = pairs.into_iter().flatten().chain(sizes.iter().enumerate().map(map)).collect();
    let label = format!("{images} of {sizes:?}, {c} to {k}, {anchors} anchors");
    let case = OpCase::new(label, RpnHead, inputs);
    case.device_floor(ORDER_FLOOR + HIDDEN_ROUNDING)
}
