//! Test and benchmark cases of `select_columns`.

use super::SelectColumns;
use crate::Role;
use crate::case::{OpCase, integers, normal};

/// 0 and 1 rows, prime sizes, and the box deltas of 1024 RoIs for 81 classes.
pub fn cases() -> Vec<OpCase> {
    let shapes = [(0, 3, 4), (1, 1, 1), (7, 3, 4), (13, 11, 5), (1024, 81, 4)];
    let activations =
        shapes.iter().flat_map(|&shape| [false, true].map(|modulo| case(shape, modulo)));
    activations.chain([case((257, 3, 4), true)]).collect()
}

fn case((rows, groups, width): (usize, usize, usize), modulo: bool) -> OpCase {
    let high = if modulo { 5 * groups } else { groups } as i32;
    let inputs = vec![
        normal(Role::Activation, &[rows, groups * width], 1, 1.0),
        integers(&[rows], 2, -1, high),
    ];
    let label = format!("{width} of {groups} groups, {rows} rows, modulo {modulo}");
    OpCase::new(label, SelectColumns { width, modulo }, inputs).grad(&[0])
}

#[cfg(test)]
mod tests {
    use super::super::SelectColumnsGrad;
    use super::*;
    use crate::case::hand::{ints, refusal, run, tensor};

    #[test]
    fn select_columns_gradient_scatters_back() {
        let values: Vec<f32> = (0..12).map(|v| v as f32).collect();
        let x = tensor(&[3, 4], values);
        let plain = SelectColumns { width: 2, modulo: false };
        let y = run(&plain, &[x.clone(), ints(&[1, -1, 0])]);
        assert_eq!(y[0].as_f32(), [2.0, 3.0, 0.0, 0.0, 8.0, 9.0]);
        let modulo = SelectColumns { width: 2, modulo: true };
        let y = run(&modulo, &[x, ints(&[7, -1, 4])]);
        assert_eq!(y[0].as_f32(), [2.0, 3.0, 0.0, 0.0, 8.0, 9.0]);
        let grad = SelectColumnsGrad { width: 2, modulo: true, columns: 4 };
        let dx = run(&grad, &[y[0].clone(), ints(&[7, -1, 4])]);
        assert_eq!(dx[0].as_f32(), [0.0, 0.0, 2.0, 3.0, 0.0, 0.0, 0.0, 0.0, 8.0, 9.0, 0.0, 0.0]);
    }

    #[test]
    fn select_columns_with_indivisible_width_is_rejected() {
        let x = tensor(&[3, 4], [0.0; 12]);
        let message = refusal(&SelectColumns { width: 3, modulo: false }, &[x, ints(&[0; 3])]);
        assert!(message.contains("`width` should be a divisor of 4"), "{message}");
    }
}
