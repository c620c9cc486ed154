//! Helpers for tests with hand-computed values.

use crate::cpu::HostTensor;
use crate::losses::{Loss, LossGrad};
use crate::{Op, Role, on_cpu};

use super::{OpCase, floats, index};

/// A tensor of these values.
pub(crate) fn tensor(shape: &[usize], values: impl AsRef<[f32]>) -> HostTensor {
    floats(Role::Activation, shape, values)
}

/// A list of integers.
pub(crate) fn ints(values: &[i32]) -> HostTensor {
    index(&[values.len()], values)
}

/// The outputs of an op for these inputs.
pub(crate) fn run(op: &dyn Op, inputs: &[HostTensor]) -> Vec<HostTensor> {
    on_cpu::run(op, inputs).unwrap_or_else(|error| panic!("{error}"))
}

/// The outputs of an op that updates this state.
pub(crate) fn update(
    op: &dyn Op,
    inputs: &[HostTensor],
    state: &mut [HostTensor],
) -> Vec<HostTensor> {
    on_cpu::run_updating(op, inputs, state).unwrap_or_else(|error| panic!("{error}"))
}

/// The outputs of a case.
pub(crate) fn outputs(case: &OpCase) -> Vec<HostTensor> {
    run(case.op.as_ref(), &case.inputs)
}

/// The error of an op that rejects these inputs.
pub(crate) fn refusal(op: &dyn Op, inputs: &[HostTensor]) -> String {
    on_cpu::run(op, inputs).expect_err("refused").to_string()
}

/// A loss, and its gradient times `factor`.
pub(crate) fn loss_and_grad<L: Loss + Op + Clone>(
    loss: &L,
    inputs: &[HostTensor],
    factor: f32,
) -> (f32, Vec<f32>) {
    let value = run(loss, inputs)[0].as_f32()[0];
    let inputs = [inputs, &[floats(Role::Loss, &[1], [factor])]].concat();
    (value, run(&LossGrad(loss.clone()), &inputs)[0].as_f32().to_vec())
}

/// Panics unless the lengths are equal and all values differ by less than `tolerance`.
#[track_caller]
pub(crate) fn assert_near(got: &[f32], want: &[f32], tolerance: f32) {
    assert_eq!(got.len(), want.len());
    let near = got.iter().zip(want).all(|(got, want)| (got - want).abs() < tolerance);
    assert!(near, "{got:?}, not {want:?}");
}
