//! Running one op on the CPU, on host tensors: the reference of tests and checks.

use crate::cpu::{CpuArgs, HostTensor, TensorMut};
use crate::{Op, OpError};

/// Runs one op on tensors that own their memory; outputs start poisoned, so that an unwritten
/// output is detected.
///
/// # Errors
/// Errors from [`Op::infer`] about the inputs.
pub fn run(op: &dyn Op, inputs: &[HostTensor]) -> Result<Vec<HostTensor>, OpError> {
    run_updating(op, inputs, &mut [])
}

/// [`run`] for an op that updates state.
///
/// # Errors
/// Errors from [`Op::infer`] about the inputs and updates.
pub fn run_updating(
    op: &dyn Op,
    inputs: &[HostTensor],
    updates: &mut [HostTensor],
) -> Result<Vec<HostTensor>, OpError> {
    let input_descs: Vec<_> = inputs.iter().map(|t| t.desc.clone()).collect();
    let update_descs: Vec<_> = updates.iter().map(|t| t.desc.clone()).collect();
    let output_descs = op.infer(&input_descs, &update_descs)?;
    let mut outputs: Vec<_> = output_descs.iter().cloned().map(HostTensor::poisoned).collect();
    let mut workspace = vec![f32::NAN; op.cpu_workspace_len(&input_descs, &output_descs)];
    let mut args = CpuArgs {
        inputs: inputs.iter().map(HostTensor::view).collect(),
        outputs: outputs
            .iter_mut()
            .zip(&output_descs)
            .map(|(t, desc)| TensorMut::new(desc, t.bytes_mut()))
            .collect(),
        updates: updates.iter_mut().map(HostTensor::view_mut).collect(),
        workspace: &mut workspace,
    };
    op.run_cpu(&mut args);
    Ok(outputs)
}
