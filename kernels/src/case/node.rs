//! Compares a device's result for an op, on values outside the case table such as those of a
//! training step, with the CPU reference: the tolerances are those of the cases.

use std::any::Any;

use half::f16;

use super::ORDER_FLOOR;
use super::on_device::{cut_floor, worst};
use crate::Op;
use crate::cpu::HostTensor;
use crate::ops::conv2d::Conv2dGradInput;

/// Inputs that make the reference round where a device does. A device rounds weights times a frozen
/// scale to fp16 before the product. Where a gradient is large, the cost of that is unrelated to
/// the root mean square of a map that is mostly zero, so no floor fits.
pub fn reference_inputs(op: &dyn Op, inputs: &[HostTensor]) -> Vec<HostTensor> {
    let mut inputs = inputs.to_vec();
    let any: &dyn Any = op;
    if !any.downcast_ref::<Conv2dGradInput>().is_some_and(|grad| grad.scale) {
        return inputs;
    }
    let scale = inputs[2].as_f32().to_vec();
    let filter_len = inputs[1].desc.len() / scale.len().max(1);
    let filters = inputs[1].as_f32_mut().chunks_mut(filter_len.max(1));
    for (filter, scale) in filters.zip(scale) {
        filter.iter_mut().for_each(|w| *w = f16::from_f32(*w * scale).to_f32());
    }
    inputs[2].as_f32_mut().fill(1.0);
    inputs
}

/// Compares a device's outputs, then its `num_updates` updates, with those of the reference on the
/// same inputs, as [`super::check_on_device`] does. Returns the largest error as a share of the
/// tolerance.
///
/// # Errors
/// A sentence that names the first tensor with an element outside its tolerance.
pub fn compare_with_reference(
    op: &dyn Op,
    inputs: &[HostTensor],
    got: &[HostTensor],
    expected: &[HostTensor],
    num_updates: usize,
) -> Result<f64, String> {
    assert_eq!(got.len(), expected.len(), "outputs and updates of {}", op.name());
    let descs = |list: &[HostTensor]| list.iter().map(|t| t.desc.clone()).collect::<Vec<_>>();
    let (inputs, outputs) = (descs(inputs), descs(&expected[..expected.len() - num_updates]));
    let floor = ORDER_FLOOR + cut_floor(op, op.cost(&inputs, &outputs).flops, &outputs);
    let mut largest = 0.0f64;
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let error = worst(got, expected, floor)
            .map_err(|reason| format!("output {i} {:?}: {reason}", expected.desc))?;
        largest = largest.max(error);
    }
    Ok(largest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Role, TensorDesc};

    #[test]
    fn weights_times_a_frozen_scale_are_rounded_as_a_device_rounds_them() {
        let tensor = |role, shape: &[usize], values: Vec<f32>| {
            HostTensor::f32(TensorDesc::new(role, shape), values)
        };
        let g = tensor(Role::Gradient, &[1, 1, 1, 2], vec![1000.0, -1000.0]);
        let w = tensor(Role::Weight, &[2, 1, 1, 1], vec![1.0, 1.0]);
        let scale = tensor(Role::Master, &[2], vec![0.3, 0.7]);
        let (stride, pad, height, width) = (1, 0, 1, 1);
        let mut op = Conv2dGradInput { stride, pad, height, width, scale: true, counted: false };
        let given = [g, w, scale];
        let inputs = reference_inputs(&op, &given);
        let rounded = [0.3, 0.7].map(|v| f16::from_f32(v).to_f32());
        assert_eq!((inputs[1].as_f32(), inputs[2].as_f32()), (&rounded[..], &[1.0, 1.0][..]));
        let [plain, as_device] = [&given[..], &inputs]
            .map(|inputs| crate::on_cpu::run(&op, inputs).expect("a gradient")[0].as_f32()[0]);
        assert!((plain - as_device).abs() > 0.1, "{plain} and {as_device} tell the two apart");
        op.scale = false;
        assert_eq!(reference_inputs(&op, &given)[1].as_f32(), [1.0, 1.0]);
    }
}
