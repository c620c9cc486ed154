//! Compares a device's result for an op, on values outside the case table such as those of a
//! training step, with the CPU reference: the tolerances are those of the cases.

use super::ORDER_FLOOR;
use super::on_device::{device_floor, worst};
use crate::cpu::HostTensor;
use crate::{Op, Precision};

/// Compares a device's outputs, then its `num_updates` updates, with those of the reference on the
/// same inputs, as [`super::check_on_device`] does; `rounding` is added to the tolerance, in units
/// of an output's root mean square. Returns the largest error as a share of the tolerance.
///
/// # Errors
/// A sentence that names the first tensor with an element outside its tolerance.
pub fn compare_with_reference(
    op: &dyn Op,
    precision: Precision,
    inputs: &[HostTensor],
    got: &[HostTensor],
    expected: &[HostTensor],
    num_updates: usize,
    rounding: f64,
) -> Result<f64, String> {
    assert_eq!(got.len(), expected.len(), "outputs and updates of {}", op.name());
    let descs = |list: &[HostTensor]| list.iter().map(|t| t.desc.clone()).collect::<Vec<_>>();
    let (inputs, outputs) = (descs(inputs), descs(&expected[..expected.len() - num_updates]));
    let flops = op.cost(&inputs, &outputs).flops;
    let floor = ORDER_FLOOR + rounding + device_floor(op, precision, flops, &outputs);
    let mut largest = 0.0f64;
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let error = worst(got, expected, precision, floor)
            .map_err(|reason| format!("output {i} {:?}: {reason}", expected.desc))?;
        largest = largest.max(error);
    }
    Ok(largest)
}
