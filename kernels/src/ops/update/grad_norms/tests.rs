//! Norms by hand, and values at the ends of f32.

use super::GradNorms;
use crate::Role;
use crate::case::floats;
use crate::case::hand::run;

fn norms(grads: &[&[f32]]) -> (Vec<f32>, i32) {
    let tensor = |g: &&[f32]| floats(Role::WeightGradient, &[g.len()], g);
    let inputs: Vec<_> = grads.iter().map(tensor).collect();
    let outputs = run(&GradNorms {}, &inputs);
    (outputs[0].as_f32().to_vec(), outputs[1].as_i32()[0])
}

#[test]
fn pythagoras() {
    assert_eq!(norms(&[&[3.0, 4.0], &[12.0], &[]]), (vec![5.0, 12.0, 0.0, 13.0], 1));
}

#[test]
fn one_element_that_is_not_finite_shows() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut grad = vec![1.0; 20_000];
        grad[17_001] = bad;
        assert_eq!(norms(&[&[1.0], &grad]).1, 0, "{bad}");
    }
}

#[test]
fn the_largest_finite_values_are_finite() {
    let (norms, finite) = norms(&[&[f32::MAX; 100]]);
    assert_eq!((norms, finite), (vec![f32::MAX; 2], 1));
}
