//! `match_rois` by hand.

use super::MatchRois;
use crate::case::hand::{run, tensor};
use crate::case::index;

/// At the threshold, below it, without extent, of an image without ground truth, of none, past the
/// count.
#[test]
fn by_hand() {
    let of = |shape: &[usize], rows: &[[f32; 4]]| tensor(shape, rows.concat());
    let rois = [
        [0.0, 0.0, 10.0, 6.0],
        [0.0, 0.0, 10.0, 5.0],
        [3.0, 0.0, 3.0, 9.0],
        [0.0, 0.0, 10.0, 10.0],
        [0.0, 0.0, 10.0, 10.0],
        [0.0, 0.0, 10.0, 10.0],
    ];
    let gts = [[90.0, 0.0, 99.0, 9.0], [0.0, 0.0, 10.0, 10.0], [0.0; 4], [0.0; 4]];
    let inputs = [
        of(&[6, 4], &rois),
        index(&[6], [0, 0, 0, 1, -1, 0]),
        index(&[1], [5]),
        of(&[2, 2, 4], &gts),
        index(&[2, 2], [3, 7, 0, 0]),
        index(&[2], [2, 0]),
    ];
    let outputs = run(&MatchRois { fg_iou: 0.6, plus_one: false }, &inputs);
    assert_eq!(outputs[0].as_i32(), [7, 0, -1, 0, -1, -1]);
    assert_eq!(outputs[1].as_i32(), [1, 0, 0, 0, 0, 0]);
}
