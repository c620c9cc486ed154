//! Cases of `select_columns` for the table of ops.

use std::sync::Arc;

use super::SelectColumns;
use crate::case::{OpCase, integers, normal};
use crate::{Role, TensorDesc};

/// Rows 0, 1, primes, and the box deltas of 1024 RoIs over 81 classes.
pub fn cases() -> Vec<OpCase> {
    let shapes = [(0, 3, 4), (1, 1, 1), (7, 3, 4), (13, 11, 5), (1024, 81, 4)];
    shapes.iter().flat_map(|&shape| [false, true].map(|modulo| case(shape, modulo))).collect()
}

fn case((rows, groups, width): (usize, usize, usize), modulo: bool) -> OpCase {
    let high = if modulo { 5 * groups } else { groups } as i32;
    let inputs = vec![
        normal(&TensorDesc::new(Role::Activation, &[rows, groups * width]), 1, 1.0),
        integers(&[rows], 2, -1, high),
    ];
    let label = format!("{width} of {groups} groups, {rows} rows, modulo {modulo}");
    OpCase::new(label, Arc::new(SelectColumns { width, modulo }), inputs).grad(&[0])
}
