//! Test and benchmark cases of `scaled_residual`.

use super::{Drop, ScaledResidual};
use crate::Role;
use crate::case::{OpCase, integers, normal, uniform};

/// No images, one value, prime sizes, channels that are a multiple of a vector, more positions than
/// a chunk; no, some and most images dropped.
pub fn cases() -> Vec<OpCase> {
    let rows: [([usize; 4], Option<f32>); 7] = [
        ([0, 4, 5, 3], None),
        ([1, 1, 1, 1], None),
        ([3, 5, 7, 11], Some(0.4)),
        ([5, 3, 4, 16], Some(0.9)),
        ([2, 13, 17, 24], Some(0.2)),
        ([2, 13, 17, 24], None),
        ([6, 2, 3, 264], Some(0.5)),
    ];
    rows.iter()
        .map(|&(shape, rate)| {
            let mut inputs = vec![
                normal(Role::Activation, &shape, 1, 1.0),
                normal(Role::Activation, &shape, 2, 1.0),
                uniform(Role::Master, &shape[3..], 3, -1.0, 1.0),
            ];
            let drop = rate.map(|rate| Drop { rate, seed: 0x1234_5678_9abc, block: 7 });
            inputs.extend(drop.map(|_| integers(&[shape[0], 4], 4, 0, 1 << 20)));
            let op = ScaledResidual { drop };
            let small = shape.iter().product::<usize>() < 1300;
            let checked: &[usize] = if small { &[0, 1, 2] } else { &[] };
            OpCase::new(format!("{shape:?}, {rate:?}"), op, inputs).grad(checked)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::hand::{refusal, run, tensor};
    use crate::case::index;

    /// The share of dropped images is close to the rate; the branches of the other images are
    /// scaled to keep the mean; a different block, seed or epoch drops different images.
    #[test]
    fn stochastic_depth_drops_given_share_of_branches() {
        let images = 4000;
        let run_with = |seed, block, epoch| -> Vec<f32> {
            let op = ScaledResidual { drop: Some(Drop { rate: 0.25, seed, block }) };
            let x = tensor(&[images, 1], vec![0.0; images]);
            let branch = tensor(&[images, 1], vec![1.0; images]);
            let keys: Vec<i32> =
                (0..images as i32).flat_map(|image| [image, 0, 0, epoch]).collect();
            let keys = index(&[images, 4], keys);
            let scale = tensor(&[1], vec![3.0]);
            run(&op, &[x, branch, scale, keys])[0].as_f32().to_vec()
        };
        let first = run_with(1, 0, 0);
        assert!(first.iter().all(|y| [0.0, 4.0].contains(y)));
        let dropped = first.iter().filter(|y| **y == 0.0).count();
        assert!((900..1100).contains(&dropped), "{dropped} of {images}");
        assert_eq!(first, run_with(1, 0, 0));
        for other in [run_with(2, 0, 0), run_with(1, 1, 0), run_with(1, 0, 1)] {
            assert_ne!(first, other);
        }
    }

    #[test]
    fn stochastic_depth_rate_of_one_is_rejected() {
        let drop = Drop { rate: 1.0, seed: 0, block: 0 };
        let map = tensor(&[1, 1], [0.0]);
        let inputs = [map.clone(), map, tensor(&[1], [0.0]), index(&[1, 4], [0; 4])];
        let error = refusal(&ScaledResidual { drop: Some(drop) }, &inputs);
        assert!(error.contains("`rate` should be at least 0 and less than 1"), "{error}");
    }
}
