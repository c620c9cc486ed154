//! Cases of `scaled_residual` for the table of ops.

use super::{Drop, ScaledResidual};
use crate::Role;
use crate::case::{OpCase, integers, normal, uniform};

/// No images, one value, primes, vectors, more positions than a chunk; none, some and most dropped.
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
