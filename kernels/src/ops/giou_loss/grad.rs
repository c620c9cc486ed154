//! Gradient of `giou_loss` by its deltas.
//!
//! Tensors: those of the loss, then `grad_output [1]` (all in) -> `grad_deltas [M, 4]`
//! (overwritten; 0 in rows without a positive label).

use device::{Launch, LaunchArgs};

use super::{GiouLossInputs, check_inputs, cpu, cuda};
use crate::check;
use crate::cpu::CpuArgs;
use crate::{Cost, Op, OpError, Role, TensorDesc};

/// `grad_output * d loss / d deltas`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GiouLossGrad {
    /// Weights of dx, dy, dw, dh in the box coding.
    pub weights: [f32; 4],
    /// Images whose rows share a mean.
    pub ipg: usize,
}

const NAME: &str = "giou_loss_grad";

impl Op for GiouLossGrad {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(NAME, "inputs", inputs, GiouLossInputs::LEN + 1)?;
        check::arity(NAME, "updates", updates, 0)?;
        check_inputs(NAME, self.weights, self.ipg, inputs)?;
        check::floats(NAME, "grad_output", &inputs[GiouLossInputs::LEN], &[1])?;
        Ok(vec![TensorDesc::new(Role::Gradient, &inputs[0].shape)])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 40 * inputs[0].len() as u64)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::backward(self.weights, self.ipg, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let rows = cpu::Rows::of(args, self.weights, self.ipg);
        let grad_output = args.inputs[GiouLossInputs::LEN].f32()[0];
        rows.grad(grad_output, args.outputs[0].f32());
    }
}
