//! `scaled_residual` by hand, and how often it drops.

use super::{Drop, ScaledResidual};
use crate::case::hand::{refusal, run, tensor};
use crate::case::index;

#[test]
fn by_hand() {
    let x = tensor(&[1, 2, 2], vec![1.0, 2.0, 3.0, 4.0]);
    let branch = tensor(&[1, 2, 2], vec![10.0, 10.0, 20.0, 20.0]);
    let scale = tensor(&[2], vec![0.5, -1.0]);
    let y = run(&ScaledResidual { drop: None }, &[x, branch, scale]);
    assert_eq!(y[0].as_f32(), [6.0, -8.0, 13.0, -16.0]);
}

/// A share of the images near the rate drops; the others grow, so that the mean stays; another
/// block, seed or epoch drops others.
#[test]
fn the_share_that_drops_is_the_rate() {
    let images = 4000;
    let run_with = |seed, block, epoch| -> Vec<f32> {
        let op = ScaledResidual { drop: Some(Drop { rate: 0.25, seed, block }) };
        let x = tensor(&[images, 1], vec![0.0; images]);
        let branch = tensor(&[images, 1], vec![1.0; images]);
        let keys: Vec<i32> = (0..images as i32).flat_map(|image| [image, 0, 0, epoch]).collect();
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
fn a_rate_of_one_is_refused() {
    let drop = Drop { rate: 1.0, seed: 0, block: 0 };
    let map = tensor(&[1, 1], [0.0]);
    let inputs = [map.clone(), map, tensor(&[1], [0.0]), index(&[1, 4], [0; 4])];
    let error = refusal(&ScaledResidual { drop: Some(drop) }, &inputs);
    assert!(error.contains("`rate` should be at least 0 and less than 1"), "{error}");
}
