//! `decode_proposals` by hand, and its bounds on random input.

use super::{DecodeProposals, cases};
use crate::boxes::as_boxes;
use crate::case::boxes::sizes;
use crate::case::hand::{outputs, run, tensor};
use crate::case::index;

/// Two levels of one anchor each; the second anchor of the list lies in the second level.
#[test]
fn by_hand() {
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
    let op =
        DecodeProposals { plus_one: false, min_size: 1.0, score_threshold: 0.0, weights: [1.0; 4] };
    let outputs = run(&op, &inputs);
    // Anchor 1: centre 60 + 10, width 40; the lower border 90 is clipped to 80. Anchor 0 moves out
    // of the image on the left, so that nothing of its width is left.
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

#[test]
fn what_counts_lies_in_the_image_and_is_large_enough() {
    for case in cases() {
        let outputs = outputs(&case);
        for (b, &score) in as_boxes(outputs[0].as_f32()).iter().zip(outputs[1].as_f32()) {
            assert!(b[0] >= 0.0 && b[1] >= 0.0 && b[2] <= 1333.0 && b[3] <= 800.0, "{b:?}");
            assert!(score == -1.0 || (0.1..=1.0).contains(&score), "{score}");
        }
    }
}
