//! Test and benchmark cases of `decode_proposals`.

use super::DecodeProposals;
use crate::Role;
use crate::case::boxes::{boxes, sizes};
use crate::case::{OpCase, integers, normal};

/// Height and width of each level.
type Maps<'a> = &'a [(usize, usize)];

/// No image, no row, rows with an invalid anchor index, prime sizes, more levels than one CUDA
/// launch supports, and 2000 rows per level as in a training step.
pub fn cases() -> Vec<OpCase> {
    let shapes: [(usize, usize, Maps<'static>); 7] = [
        (0, 5, &[(2, 3)]),
        (2, 0, &[(2, 3)]),
        (1, 1, &[(1, 1)]),
        (2, 101, &[(5, 7), (2, 3)]),
        (2, 103, &[(5, 7), (2, 3)]),
        (1, 257, &[(3, 2); 17]),
        (2, 8819, &[(200, 336), (100, 168), (50, 84), (25, 42), (13, 21)]),
    ];
    shapes.iter().flat_map(|s| [false, true].map(|p| case(s.0, s.1, s.2, p))).collect()
}

fn case(n: usize, m: usize, maps: Maps<'_>, plus_one: bool) -> OpCase {
    let total: usize = maps.iter().map(|(h, w)| 3 * h * w).sum();
    let map = |channels: usize, seed: u32, scale: f32| {
        maps.iter()
            .zip(seed..)
            .map(move |(&(h, w), seed)| normal(Role::Activation, &[n, h, w, channels], seed, scale))
    };
    let mut inputs = vec![
        integers(&[n, m], 1, -1, total as i32),
        boxes(&[total, 4], 2, 1300.0, 300.0),
        sizes(n, 800, 1333),
    ];
    inputs.extend(map(3, 10, 2.0));
    inputs.extend(map(12, 20, 0.5));
    let op = DecodeProposals { plus_one, min_size: 1e-3, score_threshold: 0.1, weights: [1.0; 4] };
    OpCase::new(format!("N {n}, M {m}, {maps:?}, plus_one {plus_one}"), op, inputs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boxes::as_boxes;
    use crate::case::hand::{run, tensor};
    use crate::case::index;

    /// Two levels of one anchor each: anchor 1 is the anchor of the second level.
    #[test]
    fn decode_proposals_matches_hand_computed_values() {
        let anchors = [[0.0, 0.0, 10.0, 20.0], [50.0, 50.0, 70.0, 90.0]].concat();
        let inputs = [
            index(&[1, 4], [1, 0, -1, 2]),
            tensor(&[2, 4], anchors),
            sizes(1, 80, 100),
            tensor(&[1, 1, 1, 1], [0.0]),
            tensor(&[1, 1, 1, 1], [3f32.ln()]),
            tensor(&[1, 1, 1, 4], [-2.0, 0.0, 0.0, 0.0]),
            tensor(&[1, 1, 1, 4], [0.5, 0.0, 2f32.ln(), 0.0]),
        ];
        let op = DecodeProposals {
            plus_one: false,
            min_size: 1.0,
            score_threshold: 0.0,
            weights: [1.0; 4],
        };
        let outputs = run(&op, &inputs);
        // Anchor 1: centre 60 + 10, width 40; the lower border 90 is clipped to 80. Anchor 0 moves
        // out of the image on the left, so its clipped width is 0.
        let expected = [[50.0, 50.0, 90.0, 80.0], [0.0, 0.0, 0.0, 20.0], [0.0; 4], [0.0; 4]];
        for (got, want) in as_boxes(outputs[0].as_f32()).iter().zip(expected) {
            assert!(got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-4), "{got:?} {want:?}");
        }
        let scores = outputs[1].as_f32();
        assert!((scores[0] - 0.75).abs() < 1e-6);
        assert_eq!(scores[1..], [-1.0, -1.0, -1.0]);
        let strict = DecodeProposals { score_threshold: 0.8, ..op };
        assert_eq!(run(&strict, &inputs)[1].as_f32(), [-1.0; 4]);
    }
}
