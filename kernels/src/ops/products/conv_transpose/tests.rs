//! A case drawn by hand, and the definition in f64.

use super::*;
use crate::Role;
use crate::case::hand::{run, tensor};
use crate::case::normal;

const PLAIN: ConvTranspose = ConvTranspose { pad: 0, relu: false, counted: false, masked: false };

/// Each input value paints its 2x2 block with the kernel.
#[test]
fn blocks_by_hand() {
    let inputs = [
        tensor(&[1, 1, 2, 1], [1.0, 10.0]),
        tensor(&[1, 2, 2, 1], [1.0, 2.0, 3.0, 4.0]),
        tensor(&[1], [0.5]),
    ];
    let y = run(&PLAIN, &inputs);
    assert_eq!(y[0].as_f32(), [1.5, 2.5, 10.5, 20.5, 3.5, 4.5, 30.5, 40.5]);
}

#[test]
fn equals_the_definition() {
    let (n, h, w, c, k) = (2, 3, 5, 7, 11);
    let x = normal(Role::Activation, &[n, h, w, c], 1, 1.0);
    let weights = normal(Role::Weight, &[c, 2, 2, k], 2, 1.0);
    let b = normal(Role::Master, &[k], 3, 1.0);
    let out = run(&PLAIN, &[x.clone(), weights.clone(), b.clone()]);
    for (i, y) in out[0].as_f32().iter().enumerate() {
        let (filter, col, line) = (i % k, i / k % (2 * w), i / k / (2 * w));
        let (row, image) = (line % (2 * h), line / (2 * h));
        let pixel = (image * h + row / 2) * w + col / 2;
        let tap = row % 2 * 2 + col % 2;
        let sum: f64 = (0..c)
            .map(|c| {
                let at = (c * 4 + tap) * k + filter;
                f64::from(x.as_f32()[pixel * 7 + c]) * f64::from(weights.as_f32()[at])
            })
            .sum();
        let exact = sum + f64::from(b.as_f32()[filter]);
        assert!((f64::from(*y) - exact).abs() < 1e-5, "{i}: {y} {exact}");
    }
}

/// The kernel of 4x4 in a row of two pixels: each column of y sums the taps that reach it.
#[test]
fn overlapping_blocks_by_hand() {
    // Taps by row of the kernel: only its second row, 1 2 3 4, lands in the first row of y.
    let row = [1.0, 2.0, 3.0, 4.0];
    let weights = [[0.0; 4], row, [0.0; 4], [0.0; 4]].concat();
    let inputs = [
        tensor(&[1, 1, 2, 1], vec![1.0, 10.0]),
        tensor(&[1, 4, 4, 1], weights),
        tensor(&[1], vec![0.5]),
    ];
    let y = run(&ConvTranspose { pad: 1, ..PLAIN }, &inputs);
    // Position x reaches columns 2x - 1 to 2x + 2 with taps 0 to 3.
    assert_eq!(y[0].as_f32(), [2.5, 13.5, 24.5, 30.5, 0.5, 0.5, 0.5, 0.5]);
}
