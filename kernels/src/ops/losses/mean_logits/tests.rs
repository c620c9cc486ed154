//! `mean_logits` by hand.

use super::MeanLogits;
use crate::case::hand::{assert_near, run, tensor};

/// Probabilities 1/4 and 3/4, and 1/2 twice; large logits do not overflow.
#[test]
fn by_hand() {
    let of = |values: [f32; 4]| tensor(&[2, 2], values);
    let sure = 3f32.ln();
    let inputs = [of([0.0, sure, 500.0, 500.0]), of([7.0, 7.0, 500.0, -500.0])];
    let outputs = run(&MeanLogits, &inputs);
    let want = [3.0 / 8.0, 5.0 / 8.0, 3.0 / 4.0, 1.0 / 4.0].map(f32::ln);
    assert_near(outputs[0].as_f32(), &want, 1e-6);
}
