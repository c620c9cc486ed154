//! `scaled_residual` by hand, and how often it drops.

use super::{Drop, ScaledResidual};
use crate::cpu::HostTensor;
use crate::on_cpu::run;
use crate::{Op, Role, TensorDesc};

fn floats(role: Role, shape: &[usize], values: Vec<f32>) -> HostTensor {
    HostTensor::f32(TensorDesc::new(role, shape), values)
}

#[test]
fn by_hand() {
    let x = floats(Role::Activation, &[1, 2, 2], vec![1.0, 2.0, 3.0, 4.0]);
    let branch = floats(Role::Activation, &[1, 2, 2], vec![10.0, 10.0, 20.0, 20.0]);
    let scale = floats(Role::Master, &[2], vec![0.5, -1.0]);
    let y = run(&ScaledResidual { drop: None }, &[x, branch, scale]).expect("fits");
    assert_eq!(y[0].as_f32(), [6.0, -8.0, 13.0, -16.0]);
}

/// A share of the images near the rate drops; the others grow, so that the mean stays; another
/// block, seed or epoch drops others.
#[test]
fn the_share_that_drops_is_the_rate() {
    let images = 4000;
    let run_with = |seed, block, epoch| -> Vec<f32> {
        let op = ScaledResidual { drop: Some(Drop { rate: 0.25, seed, block }) };
        let x = floats(Role::Activation, &[images, 1], vec![0.0; images]);
        let branch = floats(Role::Activation, &[images, 1], vec![1.0; images]);
        let keys = (0..images as i32).flat_map(|image| [image, 0, 0, epoch]).collect();
        let keys = HostTensor::i32(TensorDesc::new(Role::Index, &[images, 4]), keys);
        let scale = floats(Role::Master, &[1], vec![3.0]);
        run(&op, &[x, branch, scale, keys]).expect("fits")[0].as_f32().to_vec()
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
fn a_rate_of_one_is_refused() {
    let drop = Drop { rate: 1.0, seed: 0, block: 0 };
    let map = TensorDesc::new(Role::Activation, &[1, 1]);
    let scale = TensorDesc::new(Role::Master, &[1]);
    let keys = TensorDesc::new(Role::Index, &[1, 4]);
    let op = ScaledResidual { drop: Some(drop) };
    let error = op.infer(&[map.clone(), map, scale, keys], &[]).expect_err("refused");
    assert!(error.to_string().contains("`rate` should be at least 0 and less than 1"), "{error}");
}
