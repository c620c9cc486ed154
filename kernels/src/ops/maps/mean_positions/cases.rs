//! Test and benchmark cases of `mean_positions`.

use super::MeanPositions;
use crate::Role;
use crate::case::{OpCase, constant, normal};

/// No row, one value, prime sizes, no row in use, and RoIs of a C4 head.
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

#[cfg(test)]
mod tests {
    use super::super::MeanPositionsGrad;
    use super::*;
    use crate::case::floats;
    use crate::case::hand::{ints, refusal, run, tensor};

    /// Two channels at three positions; the second row is unused.
    #[test]
    fn mean_positions_matches_hand_computed_values() {
        let values = [[1.0, 10.0], [2.0, 20.0], [6.0, 0.0]].concat();
        let rows = [values, vec![f32::NAN; 6]].concat();
        let x = tensor(&[2, 1, 3, 2], rows);
        let count = ints(&[1]);
        let y = run(&MeanPositions, &[x, count.clone()]);
        assert_eq!(y[0].as_f32(), [3.0, 10.0, 0.0, 0.0]);
        let g = floats(Role::Gradient, &[2, 2], [3.0, 6.0, 9.0, 9.0]);
        let dx = run(&MeanPositionsGrad { height: 1, width: 3 }, &[g, count]);
        assert_eq!(dx[0].as_f32()[..6], [1.0, 2.0, 1.0, 2.0, 1.0, 2.0]);
        assert_eq!(dx[0].as_f32()[6..], [0.0; 6]);
    }

    #[test]
    fn mean_positions_of_empty_map_is_rejected() {
        refusal(&MeanPositions, &[tensor(&[2, 0, 3, 2], []), ints(&[1])]);
    }
}
