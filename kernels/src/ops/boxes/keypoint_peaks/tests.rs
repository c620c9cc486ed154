//! `keypoint_peaks` by hand.

use super::KeypointPeaks;
use crate::case::hand::{ints, refusal, run, tensor};

fn peaks(map: &[f32], b: [f32; 4]) -> Vec<f32> {
    let inputs = [tensor(&[1, map.len()], map), tensor(&[1, 4], b), ints(&[1])];
    run(&KeypointPeaks, &inputs).remove(0).as_f32().to_vec()
}

/// At its own size a map keeps its values: the third pixel of the second row.
#[test]
fn a_map_of_its_boxs_size() {
    let mut map = [0.0; 16];
    map[6] = 2.0f32.ln();
    let [x, y, logit, score] = peaks(&map, [10.0, 20.0, 14.0, 24.0])[..] else { panic!("four") };
    assert_eq!([x, y, logit], [2.5 / 4.0, 1.5 / 4.0, map[6]]);
    // One over itself and fifteen halves.
    assert!((score - 1.0 / 8.5).abs() < 1e-6, "{score}");
}

/// A side of 7.2 pixels has 8 pixels of 0.9; one of 0.4 has one pixel of 1, past its end.
#[test]
fn sides_are_rounded_up_to_whole_pixels() {
    let b = [0.0, 0.0, 7.2, 0.4];
    let [x, y, ..] = peaks(&[0.0, 0.0, 0.0, 9.0], b)[..] else { panic!("four") };
    assert!((7.2 * x - 7.5 * 0.9).abs() < 1e-5, "{x}");
    assert!((0.4 * y - 0.5).abs() < 1e-6, "{y}");
}

/// Equal values: the first; no value at all: the first pixel.
#[test]
fn ties_fall_to_the_first_and_nan_to_the_first_pixel() {
    let b = [0.0, 0.0, 3.0, 3.0];
    assert_eq!(peaks(&[1.0; 9], b)[..3], [0.5 / 3.0, 0.5 / 3.0, 1.0]);
    assert_eq!(peaks(&[f32::NAN; 9], b)[..2], [0.5 / 3.0, 0.5 / 3.0]);
    assert_eq!(peaks(&[1.0; 9], [2.0, 2.0, 2.0, 2.0])[..2], [0.5, 0.5]);
}

#[test]
fn maps_that_are_not_square_are_refused() {
    let inputs = |maps: [usize; 2]| {
        let logits = vec![0.0; maps[0] * maps[1]];
        [tensor(&maps, logits), tensor(&[2, 4], [0.0; 8]), ints(&[1])]
    };
    run(&KeypointPeaks, &inputs([6, 9]));
    for maps in [[6, 8], [5, 9], [6, 65 * 65]] {
        refusal(&KeypointPeaks, &inputs(maps));
    }
}
