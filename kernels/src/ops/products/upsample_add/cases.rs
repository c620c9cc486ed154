//! Cases of `upsample_add` for the table of ops.

use super::{UpsampleAdd, UpsampleGrad};
use crate::case::{OpCase, normal};
use crate::{Finish, Role};

/// No images, one value, odd sizes, a map that shrinks, and P5 onto P4 of a training step.
pub fn cases() -> Vec<OpCase> {
    let rows: [[usize; 6]; 7] = [
        [0, 4, 4, 2, 2, 3],
        [1, 1, 1, 1, 1, 1],
        [2, 13, 11, 7, 5, 5],
        [1, 7, 5, 3, 5, 11],
        [1, 3, 2, 7, 5, 2],
        [1, 3, 2, 7, 5, 8],
        [1, 50, 84, 25, 42, 256],
    ];
    let finished = rows[..6].iter().map(finished);
    rows.iter()
        .map(|&[n, out_h, out_w, h, w, c]| {
            let map = |h, w, seed| normal(Role::Activation, &[n, h, w, c], seed, 1.0);
            let inputs = vec![map(out_h, out_w, 1), map(h, w, 2)];
            let label = format!("{n} x {h} x {w} onto {out_h} x {out_w} x {c}");
            OpCase::new(label, UpsampleAdd, inputs).grad(&[0, 1])
        })
        .chain(finished)
        .collect()
}

/// The gradient of the coarser map, added to another.
fn finished(&[n, out_h, out_w, height, width, c]: &[usize; 6]) -> OpCase {
    let map = |h, w, seed| normal(Role::Gradient, &[n, h, w, c], seed, 1.0);
    let inputs = vec![map(out_h, out_w, 1), map(height, width, 2)];
    let finish = Finish { other: true, mask: false };
    let op = UpsampleGrad { height, width, finish };
    OpCase::new(format!("{n} x {out_h} x {out_w} onto {height} x {width} x {c}, added"), op, inputs)
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use super::*;
    use crate::case::hand::{run, tensor};

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
}
