//! Comparison tolerances for ops that round intermediate values to fp16 on a GPU, but not in the
//! CPU reference.

use std::any::Any;

use half::f16;

use super::gemm_op::GradInput;
use super::projected::Projected;
use super::rpn_head::{HIDDEN_ROUNDING, RpnHead};
use crate::Op;
use crate::cpu::HostTensor;

/// The rounding error of an output, in units of its root mean square.
pub fn floor(op: &dyn Op) -> f64 {
    if (op as &dyn Any).is::<RpnHead>() { HIDDEN_ROUNDING } else { 0.0 }
}

/// Inputs with which the CPU reference rounds like a GPU: the weights are multiplied by their
/// frozen scale and rounded before the GEMM. A tolerance in units of the root mean square would not
/// do: in a gradient map that is mostly zero, the errors of the few large values are unrelated to
/// the root mean square.
pub fn inputs(op: &dyn Op, inputs: &[HostTensor]) -> Vec<HostTensor> {
    let mut inputs = inputs.to_vec();
    let op = op as &dyn Any;
    if op.downcast_ref::<GradInput>().is_some_and(|op| op.scale) {
        round_scaled(&mut inputs[1..=2]);
    } else if op.is::<Projected>() {
        round_scaled(&mut inputs[1..=2]);
        round_scaled(&mut inputs[5..=6]);
    }
    inputs
}

/// Multiplies the weights by their scale, rounds them to fp16, and sets the scale to 1.
fn round_scaled(pair: &mut [HostTensor]) {
    let [weights, scale] = pair else { panic!("weights and their scale") };
    let filter_len = weights.desc.len() / scale.desc.len().max(1);
    let filters = weights.as_f32_mut().chunks_mut(filter_len.max(1));
    for (filter, scale) in filters.zip(scale.as_f32()) {
        filter.iter_mut().for_each(|w| *w = f16::from_f32(*w * scale).to_f32());
    }
    scale.as_f32_mut().fill(1.0);
}

#[cfg(test)]
mod tests {
    use super::inputs as rounded;
    use super::*;
    use crate::case::floats;
    use crate::case::hand::run;
    use crate::ops::layer::Layer;
    use crate::{GradEpilogue, Role};

    #[test]
    fn frozen_scale_rounds_weights_as_the_device_does() {
        let g = floats(Role::Gradient, &[1, 1, 1, 2], [1000.0, -1000.0]);
        let w = floats(Role::Weight, &[2, 1, 1, 1], [1.0, 1.0]);
        let scale = floats(Role::Master, &[2], [0.3, 0.7]);
        let (layer, x) = (Layer::conv2d(1, 0), vec![1, 1, 1, 1]);
        let (counted, epilogue) = (false, GradEpilogue::default());
        let mut op = GradInput { layer, x, scale: true, counted, epilogue };
        let given = [g, w, scale];
        let as_rounded = rounded(&op, &given);
        let halves = [0.3, 0.7].map(|v| f16::from_f32(v).to_f32());
        assert_eq!(
            (as_rounded[1].as_f32(), as_rounded[2].as_f32()),
            (&halves[..], &[1.0, 1.0][..])
        );
        let [plain, as_device] =
            [&given[..], &as_rounded].map(|inputs| run(&op, inputs)[0].as_f32()[0]);
        assert!((plain - as_device).abs() > 0.1, "{plain} and {as_device} tell the two apart");
        op.scale = false;
        assert_eq!(rounded(&op, &given)[1].as_f32(), [1.0, 1.0]);
    }
}
