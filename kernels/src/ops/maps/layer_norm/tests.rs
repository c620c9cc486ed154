//! `layer_norm` by hand.

use super::LayerNorm;
use crate::case::hand::{assert_near, refusal, run, tensor};

/// Values 1 to 4 have a mean of 2.5 and a variance of 1.25; a constant position stays at the shift.
#[test]
fn by_hand() {
    let vector = |values: Vec<f32>| tensor(&[values.len()], values);
    let x = vec![1.0, 2.0, 3.0, 4.0, 7.0, 7.0, 7.0, 7.0];
    let x = tensor(&[2, 4], x);
    let (gamma, beta) = (vector(vec![1.0, 1.0, 2.0, 2.0]), vector(vec![0.0, 1.0, 0.0, 1.0]));
    let y = run(&LayerNorm { eps: 0.0 }, &[x, gamma, beta]);
    let unit = 1.0 / 1.25f32.sqrt();
    let want = [-1.5 * unit, 1.0 - 0.5 * unit, unit, 1.0 + 3.0 * unit];
    assert_near(&y[0].as_f32()[..4], &want, 1e-6);
    assert_eq!(y[1].as_f32()[..2], [2.5, unit]);
    let x = tensor(&[1, 2], [7.0; 2]);
    let inputs = [x, vector(vec![1.0; 2]), vector(vec![5.0, 6.0])];
    let y = run(&LayerNorm { eps: 1e-6 }, &inputs);
    assert_eq!(y[0].as_f32(), [5.0, 6.0]);
}

#[test]
fn no_channels_are_refused() {
    let empty = [tensor(&[2, 0], []), tensor(&[0], []), tensor(&[0], [])];
    assert!(refusal(&LayerNorm { eps: 0.0 }, &empty).contains("[.., C] with C > 0"));
}
