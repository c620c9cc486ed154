//! `encode_boxes` by hand, and that `decode` undoes it.

use super::{EncodeBoxes, cases};
use crate::boxes::{as_boxes, decode};
use crate::case::hand::{assert_near, outputs, run, tensor};
use crate::case::index;

#[test]
fn by_hand() {
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
    // The centre moves by 10 of 10 pixels, the width doubles.
    let want = [10.0, 0.0, 5.0 * 2f32.ln(), 0.0];
    assert_near(&outputs[0].as_f32()[..4], &want, 1e-5);
    assert_eq!(outputs[0].as_f32()[4..], [0.0; 12]);
    assert_eq!(as_boxes(outputs[1].as_f32()), [gt, [0.0; 4], [0.0; 4], [0.0; 4]]);
}

#[test]
fn decoding_gives_the_ground_truth_back() {
    for case in cases() {
        let plus_one = case.label.contains("plus_one true");
        let outputs = outputs(&case);
        let boxes = as_boxes(case.inputs[0].as_f32());
        let rows = as_boxes(outputs[0].as_f32()).iter().zip(as_boxes(outputs[1].as_f32()));
        for (b, (target, gt)) in boxes.iter().zip(rows) {
            // A ratio of sides over 1000 / 16 cannot come back.
            if *gt == [0.0; 4] || target[2..].iter().any(|&d| d / 5.0 > 4.1) {
                continue;
            }
            let back = decode(b, target, &[10.0, 10.0, 5.0, 5.0], plus_one);
            assert_near(&back, gt, 2e-3);
        }
    }
}
