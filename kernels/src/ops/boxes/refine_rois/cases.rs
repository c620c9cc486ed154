//! Test and benchmark cases of `refine_rois`.

use super::RefineRois;
use crate::Role;
use crate::case::boxes::boxes;
use crate::case::{OpCase, constant, integers, normal};

/// No row, one row, prime sizes, and the RoIs of a training step; only some rows are in use.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boxes::as_boxes;
    use crate::case::hand::{run, tensor};
    use crate::case::index;

    /// A RoI shifted by half its width out of a 40 x 30 image, a doubled width, and unused rows.
    #[test]
    fn refine_rois_matches_hand_computed_values() {
        let of = |rows: [[f32; 4]; 4]| tensor(&[4, 4], rows.concat());
        let b = [20.0, 10.0, 40.0, 20.0];
        let inputs = [
            of([b; 4]),
            of([[5.0, 0.0, 0.0, 0.0], [0.0, 0.0, 5.0 * 2f32.ln(), 0.0], [0.0; 4], [0.0; 4]]),
            index(&[4], [0, 0, -1, 0]),
            index(&[1], [3]),
            index(&[1, 2], [30, 40]),
        ];
        let op = RefineRois { weights: [10.0, 10.0, 5.0, 5.0], plus_one: false };
        let outputs = run(&op, &inputs);
        let rows = as_boxes(outputs[0].as_f32());
        assert_eq!(rows[0], [30.0, 10.0, 40.0, 20.0]);
        assert_eq!(rows[1], [10.0, 10.0, 40.0, 20.0]);
        assert_eq!(rows[2..], [[0.0; 4]; 2]);
    }
}
