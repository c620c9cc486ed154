//! Cases of `publish` for the table of ops.

use super::Publish;
use crate::Role;
use crate::case::{OpCase, constant, integers, normal};

/// Step whose sequence number is the bit pattern of infinity: a device that is off by one writes
/// another float, which a comparison of small patterns, all next to zero, would not see.
const BEFORE_INFINITY: i32 = 0x7f7f_ffff;

/// No input, lengths 0 and 1, a block and its neighbours, a ring wider than its row, and what a
/// training step publishes.
pub fn cases() -> Vec<OpCase> {
    vec![
        case("nothing", &[], [1, 1], 0),
        case("one of one", &[1], [1, 2], 5),
        case("a wide ring", &[0, 1, 7, 13], [5, 64], 12),
        case("a block", &[255], [3, 256], 4),
        case("past a block", &[256, 1], [3, 258], 4),
        case("a training step", &[1, 1, 1, 1, 1, 4, 83, 12, 1], [16, 128], BEFORE_INFINITY),
        case("a step past the end of i32", &[4], [7, 5], -1),
    ]
}

/// Every third input is of integers.
fn case(label: &str, lens: &[usize], ring: [usize; 2], step: i32) -> OpCase {
    let input = |(i, &len): (usize, &usize)| match i % 3 {
        2 => integers(&[len], i as u32, -1000, 1000),
        _ => normal(Role::Loss, &[len], i as u32, 1.0),
    };
    let inputs = lens.iter().enumerate().map(input).collect();
    let ring = normal(Role::Scalar, &ring, 99, 1.0);
    let step = constant(&[1], step);
    OpCase::new(label, Publish, inputs).updating(vec![ring, step])
}
