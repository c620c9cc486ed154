//! Patches by hand, and the property that gradients only move.

use super::{GatherPatches, GatherPatchesGrad};
use crate::Role;
use crate::case::hand::{run, tensor};
use crate::case::{index, integers, normal};

/// Levels 2x3 and 1x2 with 2 anchors a cell: anchor 3 is the cell (0, 1), anchor 14 the second
/// level's (0, 1).
#[test]
fn patches_by_hand() {
    let inputs = [
        tensor(&[1, 2, 3, 1], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
        tensor(&[1, 1, 2, 1], [7.0, 8.0]),
        index(&[1, 3], [3, -1, 14]),
    ];
    let patches = run(&GatherPatches { anchors_per_cell: 2, reach: 1 }, &inputs);
    let expected = [
        [0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        [0.0; 9],
        [0.0, 0.0, 0.0, 7.0, 8.0, 0.0, 0.0, 0.0, 0.0],
    ];
    assert_eq!(patches[0].as_f32(), expected.concat());
    let wide = run(&GatherPatches { anchors_per_cell: 2, reach: 2 }, &inputs);
    let of_last = &wide[0].as_f32()[50..];
    let expected = [[0.0; 10], [0.0, 7.0, 8.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]].concat();
    assert_eq!(of_last[..20], expected);
}

/// Cells far from a border: every element of the gradient arrives exactly once.
#[test]
fn the_gradient_keeps_its_sum() {
    let g = normal(Role::Gradient, &[6, 3, 3, 2], 1, 1.0);
    let mut idx = integers(&[2, 3], 2, 0, 1);
    if let crate::cpu::HostData::I32(values) = &mut idx.data {
        values.copy_from_slice(&[8, 8, 12, 7, 18, 6]);
    }
    let op = GatherPatchesGrad { anchors_per_cell: 1, reach: 1, level_sizes: vec![[5, 5]] };
    let grads = run(&op, &[g.clone(), idx]);
    let sum = |v: &[f32]| v.iter().map(|&v| f64::from(v)).sum::<f64>();
    assert!((sum(grads[0].as_f32()) - sum(g.as_f32())).abs() < 1e-5);
}
