//! Test and benchmark cases of `upsample_add`.

use super::{UpsampleAdd, UpsampleGrad};
use crate::case::{OpCase, normal};
use crate::{GradEpilogue, Role};

/// No images, one value, odd sizes, a top map larger than the lateral map, and P5 onto P4 of a
/// training step.
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
    let with_epilogue = rows[..6].iter().map(with_epilogue);
    rows.iter()
        .map(|&[n, out_h, out_w, h, w, c]| {
            let map = |h, w, seed| normal(Role::Activation, &[n, h, w, c], seed, 1.0);
            let inputs = vec![map(out_h, out_w, 1), map(h, w, 2)];
            let label = format!("{n} x {h} x {w} onto {out_h} x {out_w} x {c}");
            OpCase::new(label, UpsampleAdd, inputs).grad(&[0, 1])
        })
        .chain(with_epilogue)
        .collect()
}

/// The gradient of the coarser map, added to another gradient.
fn with_epilogue(&[n, out_h, out_w, height, width, c]: &[usize; 6]) -> OpCase {
    let map = |h, w, seed| normal(Role::Gradient, &[n, h, w, c], seed, 1.0);
    let inputs = vec![map(out_h, out_w, 1), map(height, width, 2)];
    let epilogue = GradEpilogue { other: true, mask: false };
    let op = UpsampleGrad { height, width, epilogue };
    OpCase::new(format!("{n} x {out_h} x {out_w} onto {height} x {width} x {c}, added"), op, inputs)
}
