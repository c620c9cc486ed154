//! Test and benchmark cases of `weighted_losses`.

use super::{MAX_LOSSES, WeightedLosses};
use crate::Role;
use crate::case::{OpCase, floats, normal};
use crate::cpu::HostTensor;

/// No loss, one loss, the losses of a detector, as many losses as one launch supports, and an
/// infinite loss.
pub fn cases() -> Vec<OpCase> {
    let mut infinite = case(3, 0.25, 1.0);
    infinite.inputs[1].as_f32_mut()[0] = f32::INFINITY;
    infinite.label += ", one infinite";
    let cases = [(0, 0.5, 1.0), (1, 0.3, 0.0), (5, 1.0 / 6.0, 2.0), (MAX_LOSSES, 0.1, 0.0)];
    cases.into_iter().map(|(n, weight, stop)| case(n, weight, stop)).chain([infinite]).collect()
}

fn case(n: usize, weight: f32, stop: f32) -> OpCase {
    let loss = |i| normal(Role::Loss, &[1], i as u32, 1.0);
    let scalar = |value| floats(Role::Scalar, &[1], [value]);
    let mut inputs: Vec<HostTensor> = (0..n).map(loss).collect();
    inputs.extend([scalar(weight), scalar(stop)]);
    let op = WeightedLosses;
    OpCase::new(format!("{n} losses, weight {weight}, stop {stop}"), op, inputs)
}
