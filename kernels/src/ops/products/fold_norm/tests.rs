//! A norm by hand, and a scale of 0, whose gradient is there.

use super::{FoldNorm, FoldNormGrad};
use crate::case::hand::{run, tensor};

/// Standard deviations 2 and 1: the first filter is halved and tripled, the second cleared.
#[test]
fn a_norm_by_hand() {
    let w = tensor(&[2, 2], [1.0, 2.0, 3.0, 4.0]);
    let [gamma, mean] = [&[3.0, 0.0], &[4.0, 5.0]].map(|values| tensor(&[2], values));
    let [beta, var] = [&[1.0, 2.0], &[3.0, 0.0]].map(|values| tensor(&[2], values));
    let inputs = [w.clone(), gamma.clone(), beta, mean.clone(), var.clone()];
    let folded = run(&FoldNorm { eps: 1.0 }, &inputs);
    assert_eq!(folded[0].as_f32(), [1.5, 3.0, 0.0, 0.0]);
    assert_eq!(folded[1].as_f32(), [-5.0, 2.0]);

    let dfolded = tensor(&[2, 2], [10.0, 1.0, 1.0, 1.0]);
    let inputs = [dfolded, tensor(&[2], [2.0, 1.0]), w, gamma, mean, var];
    let grads = run(&FoldNormGrad { eps: 1.0 }, &inputs);
    assert_eq!(grads[0].as_f32(), [15.0, 1.5, 0.0, 0.0]);
    assert_eq!(grads[1].as_f32(), [(12.0 - 8.0) / 2.0, 7.0 - 5.0]);
    assert_eq!(grads[2].as_f32(), [2.0, 1.0]);
}
