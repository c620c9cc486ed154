//! A case drawn by hand, and the definition.

use super::*;
use crate::Role;
use crate::case::hand::{run, tensor};
use crate::case::normal;

/// Two columns onto five: sources 0 0 0 1 1.
#[test]
fn odd_width_by_hand() {
    let lateral = tensor(&[1, 1, 5, 1], [10.0, 20.0, 30.0, 40.0, 50.0]);
    let y = run(&UpsampleAdd, &[lateral, tensor(&[1, 1, 2, 1], [1.0, 2.0])]);
    assert_eq!(y[0].as_f32(), [11.0, 21.0, 31.0, 42.0, 52.0]);
    let g = tensor(&[1, 1, 5, 1], [1.0, 2.0, 4.0, 8.0, 16.0]);
    let dtop = run(&UpsampleGrad { height: 1, width: 2, finish: Finish::default() }, &[g]);
    assert_eq!(dtop[0].as_f32(), [7.0, 24.0]);
}

/// The gradient is the transpose: <g, up(t)> = <grad(g), t>, whatever the sizes.
#[test]
fn gradient_is_the_transpose() {
    for [out_h, out_w, h, w] in [[13, 11, 7, 5], [8, 8, 4, 4], [3, 4, 7, 9]] {
        let map = |h, w, seed| normal(Role::Activation, &[2, h, w, 3], seed, 1.0);
        let (g, top) = (map(out_h, out_w, 1), map(h, w, 2));
        let zeros = tensor(&[2, out_h, out_w, 3], vec![0.0; g.desc.len()]);
        let up = run(&UpsampleAdd, &[zeros, top.clone()]);
        let dtop = run(
            &UpsampleGrad { height: h, width: w, finish: Finish::default() },
            std::slice::from_ref(&g),
        );
        let dot = |a: &[f32], b: &[f32]| -> f64 {
            a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
        };
        let (a, b) = (dot(g.as_f32(), up[0].as_f32()), dot(dtop[0].as_f32(), top.as_f32()));
        assert!((a - b).abs() < 1e-4, "{a} {b}");
    }
}
