//! Probabilities by hand.

use super::MaskProbabilities;
use crate::case::hand::{assert_near, run, tensor};
use crate::case::index;

#[test]
fn rows_without_a_class_have_none() {
    let logits = vec![2.0f32.ln(), 5.0, 0.0, 1.0];
    let ints = |v: &[i32]| index(&[v.len()], v);
    let inputs = [tensor(&[4, 1, 1], logits), ints(&[1, 0, 2, 1]), ints(&[3])];
    let probs = run(&MaskProbabilities, &inputs);
    assert_near(probs[0].as_f32(), &[2.0 / 3.0, 0.0, 0.5, 0.0], 1e-6);
}
