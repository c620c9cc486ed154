//! Test and benchmark cases of `encode_boxes`.

use super::EncodeBoxes;
use crate::case::boxes::boxes;
use crate::case::{OpCase, integers};

/// No row, no ground truth, one of each, prime sizes, and 512 RoIs in each of 12 images.
pub fn cases() -> Vec<OpCase> {
    [(0, 2, 3), (5, 2, 0), (1, 1, 1), (101, 5, 7), (6144, 12, 100)]
        .iter()
        .flat_map(|&s| [false, true].map(|plus_one| (s, plus_one)))
        .map(|((m, n, g), plus_one)| {
            let inputs = vec![
                boxes(&[m, 4], 1, 700.0, 300.0),
                integers(&[m], 2, -1, n as i32),
                integers(&[m], 3, -1, g as i32),
                boxes(&[n, g, 4], 4, 700.0, 300.0),
                integers(&[m], 5, -1, 81),
            ];
            let op = EncodeBoxes { weights: [10.0, 10.0, 5.0, 5.0], plus_one };
            let label = format!("M {m}, N {n}, G {g}, plus_one {plus_one}");
            OpCase::new(label, op, inputs)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boxes::as_boxes;
    use crate::case::hand::{assert_near, run, tensor};
    use crate::case::index;

    #[test]
    fn encode_boxes_matches_hand_computed_values() {
        let b = [0.0, 0.0, 10.0, 20.0];
        let gt = [5.0, 0.0, 25.0, 20.0];
        let inputs = [
            tensor(&[4, 4], [b, b, b, b].concat()),
            index(&[4], [1, 1, -1, 1]),
            index(&[4], [0, 0, 0, -1]),
            tensor(&[2, 1, 4], [[9.0; 4], gt].concat()),
            index(&[4], [3, 0, 3, 3]),
        ];
        let op = EncodeBoxes { weights: [10.0, 10.0, 5.0, 5.0], plus_one: false };
        let outputs = run(&op, &inputs);
        // The centre moves by 10 pixels (the width is 10), the width doubles.
        let want = [10.0, 0.0, 5.0 * 2f32.ln(), 0.0];
        assert_near(&outputs[0].as_f32()[..4], &want, 1e-5);
        assert_eq!(outputs[0].as_f32()[4..], [0.0; 12]);
        assert_eq!(as_boxes(outputs[1].as_f32()), [gt, [0.0; 4], [0.0; 4], [0.0; 4]]);
    }
}
