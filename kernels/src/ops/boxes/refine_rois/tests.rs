//! `refine_rois` by hand.

use super::RefineRois;
use crate::boxes::as_boxes;
use crate::case::hand::{run, tensor};
use crate::case::index;

/// A shift by half its width out of an image of 40 x 30, a double width, rows not in use.
#[test]
fn by_hand() {
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
