//! Test and benchmark cases of `fold_norm`.

use super::FoldNorm;
use crate::Role;
use crate::case::{OpCase, normal, uniform};

/// No filters, empty filters, one value, prime sizes, sizes near the block size, and a convolution
/// of a head.
pub fn cases() -> Vec<OpCase> {
    let shapes: [&[usize]; 8] = [
        &[0, 3],
        &[3, 0],
        &[1, 1],
        &[5, 3, 3, 7],
        &[13, 255],
        &[2, 256],
        &[3, 257],
        &[64, 3, 3, 64],
    ];
    shapes.into_iter().map(case).collect()
}

fn case(shape: &[usize]) -> OpCase {
    let vector = |seed, low, high| uniform(Role::Master, &shape[..1], seed, low, high);
    let inputs = vec![
        normal(Role::Weight, shape, 1, 0.5),
        vector(2, -1.5, 1.5),
        vector(3, -1.0, 1.0),
        vector(4, -1.0, 1.0),
        vector(5, 0.5, 2.0),
    ];
    OpCase::new(format!("{shape:?}"), FoldNorm { eps: 1e-5 }, inputs)
        .grad(&[0, 1, 2])
        .through_masters()
}

#[cfg(test)]
mod tests {
    use super::super::FoldNormGrad;
    use super::*;
    use crate::case::hand::{run, tensor};

    /// Standard deviations 2 and 1: the first filter is divided by 2 and multiplied by 3, the
    /// second becomes 0.
    #[test]
    fn fold_norm_matches_hand_computed_values() {
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
}
