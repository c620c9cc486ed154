//! Test and benchmark cases of `group_norm`.

use super::GroupNorm;
use crate::Role;
use crate::case::{OpCase, integers, normal, uniform};
use crate::ops::relu_mask::one_sided;

/// No images, one value, prime sizes, position counts near the chunk size, one group per channel, a
/// map of a small model, and more channels than a block processes at once.
pub fn cases() -> Vec<OpCase> {
    let rows: [([usize; 4], usize); 9] = [
        ([0, 3, 3, 4], 2),
        ([1, 1, 1, 2], 1),
        ([2, 5, 7, 6], 3),
        ([1, 127, 1, 4], 2),
        ([1, 8, 16, 4], 4),
        ([3, 43, 3, 10], 1),
        ([1, 11, 13, 11], 11),
        ([2, 32, 32, 48], 8),
        ([2, 9, 15, 272], 17),
    ];
    rows.iter()
        .flat_map(|row| {
            let flags = [(false, false, false), (true, true, false), (true, false, true)];
            flags.map(|flags| (row, flags))
        })
        .map(|(&(shape, groups), (relu, residual, counted))| {
            let mut inputs = vec![
                normal(Role::Activation, &shape, 1, 2.0),
                uniform(Role::Master, &shape[3..], 2, 0.5, 1.5),
                one_sided(shape[3]),
            ];
            if residual {
                inputs.push(normal(Role::Activation, &shape, 4, 1.0));
            }
            let checked: &[usize] = if residual { &[0, 1, 2, 3] } else { &[0, 1, 2] };
            if counted {
                inputs.push(integers(&[1], 5, 0, shape[0] as i32 + 1));
            }
            let op = GroupNorm { groups, eps: 0.1, relu, residual, counted };
            let label = format!("{shape:?} {groups} groups, relu {relu}, counted {counted}");
            // Finite differences would include images past the count, which have no gradient.
            let checked = if counted { &[] } else { checked };
            OpCase::new(label, op, inputs).grad(checked).grad_bounds(1e-2, 2e-3)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use super::*;
    use crate::Op;
    use crate::case::constant;
    use crate::case::hand::{assert_near, run, tensor};
    use crate::cpu::HostTensor;

    fn plain(groups: usize) -> GroupNorm {
        GroupNorm { groups, eps: 0.0, relu: false, residual: false, counted: false }
    }

    /// Values 1 and 3: mean 2, standard deviation 1. The second group is 10, 10, 10, 14: mean 11,
    /// variance 3.
    #[test]
    fn group_norm_of_two_groups_matches_hand_computed_values() {
        let x = tensor(&[1, 2, 1, 4], [1.0, 3.0, 10.0, 10.0, 3.0, 1.0, 10.0, 14.0]);
        let gamma = tensor(&[4], [1.0, 2.0, 1.0, 1.0]);
        let beta = tensor(&[4], [0.0, 5.0, 0.0, 0.0]);
        let out = run(&plain(2), &[x, gamma, beta]);
        let r = 1.0 / 3.0f32.sqrt();
        let expected = [-1.0, 7.0, -r, -r, 1.0, 3.0, -r, 3.0 * r];
        assert_near(out[0].as_f32(), &expected, 1e-6);
        assert_eq!(out[1].as_f32()[..3], [2.0, 1.0, 11.0]);
    }

    /// With a mean of ten thousand standard deviations, the result loses no more precision than the
    /// f32 inputs.
    #[test]
    fn large_mean_keeps_variance_accurate() {
        let mut x = normal(Role::Activation, &[1, 40, 40, 4], 1, 1.0);
        x.as_f32_mut().iter_mut().for_each(|v| *v += 1e4);
        let exact = {
            let v: Vec<f64> = x.as_f32().iter().map(|&v| f64::from(v)).collect();
            let mean = v.iter().sum::<f64>() / v.len() as f64;
            let variance = v.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / v.len() as f64;
            1.0 / variance.sqrt()
        };
        let ones = tensor(&[4], [1.0; 4]);
        let zeros = tensor(&[4], [0.0; 4]);
        let stats = &run(&plain(1), &[x, ones, zeros])[1];
        assert!((f64::from(stats.as_f32()[1]) / exact - 1.0).abs() < 1e-6);
    }

    /// The output does not change when a group's input is scaled and shifted.
    #[test]
    fn group_norm_is_invariant_to_scale_and_shift_of_input() {
        let x = normal(Role::Activation, &[2, 5, 7, 6], 1, 1.0);
        let mut moved = x.clone();
        moved.as_f32_mut().iter_mut().for_each(|v| *v = *v * 8.0 + 3.0);
        let params = [normal(Role::Master, &[6], 2, 1.0), normal(Role::Master, &[6], 3, 1.0)];
        let y = |x: HostTensor| run(&plain(3), &[x, params[0].clone(), params[1].clone()]);
        assert_near(y(x)[0].as_f32(), y(moved)[0].as_f32(), 1e-5);
    }

    #[test]
    fn sums_past_count_do_not_contribute() {
        let sums = tensor(&[2, 2, 1], [1.0, 2.0, f32::NAN, f32::NAN]);
        let grads = run(&GroupNormGradParams { counted: true }, &[sums, constant(&[1], 1)]);
        assert_eq!([grads[0].as_f32()[0], grads[1].as_f32()[0]], [2.0, 1.0]);
    }

    #[test]
    fn groups_must_divide_channels() {
        let desc = |shape: &[usize]| TensorDesc::new(Role::Activation, shape);
        let error = plain(4).infer(&[desc(&[1, 2, 2, 6]), desc(&[6]), desc(&[6])], &[]);
        let error = error.expect_err("6 channels have no 4 groups").to_string();
        assert!(error.contains("divisor of the 6 channels"), "{error}");
    }
}
