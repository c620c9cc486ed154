//! The loss by hand: only positives in use.

use super::MaskBceLoss;
use crate::case::hand::{assert_near, ints, loss_and_grad, tensor};

/// Rows of one pixel: row 0 has logit 0 against a soft target (ln 2), row 1 ln 3 against 1
/// (ln 4/3); row 2 is background, row 3 past the count.
#[test]
fn positives_in_use_by_hand() {
    let logits = vec![0.0, 3.0f32.ln(), f32::NAN, f32::NAN];
    let inputs = [
        tensor(&[4, 1, 1], logits),
        ints(&[1, 2, 0, 1]),
        tensor(&[4, 1, 1], [0.25, 1.0, 0.0, 0.0]),
        ints(&[0; 4]),
        ints(&[3]),
        ints(&[1]),
    ];
    let (loss, grad) = loss_and_grad(&MaskBceLoss { ipg: 1 }, &inputs, 2.0);
    let expected = 0.5 * (2.0f32.ln() + (4.0f32 / 3.0).ln());
    assert!((loss - expected).abs() < 1e-6, "{loss} {expected}");
    assert_near(&grad, &[0.25, -0.25, 0.0, 0.0], 1e-6);
}
