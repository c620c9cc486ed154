//! Cases of `select_columns` for the table of ops.

use super::SelectColumns;
use crate::Role;
use crate::case::{OpCase, integers, normal};

/// Rows 0, 1, primes, the box deltas of 1024 RoIs over 81 classes, and columns of f32.
pub fn cases() -> Vec<OpCase> {
    let shapes = [(0, 3, 4), (1, 1, 1), (7, 3, 4), (13, 11, 5), (1024, 81, 4)];
    let activations = shapes
        .iter()
        .flat_map(|&shape| [false, true].map(|modulo| case(shape, modulo, Role::Activation)));
    activations.chain([case((257, 3, 4), true, Role::Box)]).collect()
}

fn case((rows, groups, width): (usize, usize, usize), modulo: bool, role: Role) -> OpCase {
    let high = if modulo { 5 * groups } else { groups } as i32;
    let inputs =
        vec![normal(role, &[rows, groups * width], 1, 1.0), integers(&[rows], 2, -1, high)];
    let label = format!("{width} of {groups} groups, {rows} rows, modulo {modulo}, {role:?}");
    OpCase::new(label, SelectColumns { width, modulo }, inputs).grad(&[0])
}
