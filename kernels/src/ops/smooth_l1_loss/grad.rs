//! Gradient of `smooth_l1_loss` by its predictions.
//!
//! Tensors: those of the loss, then `grad_output [1]` (all in) -> `grad_pred [M, 4]`
//! (overwritten; 0 in rows without a positive label).

use device::{Launch, LaunchArgs};

use super::{SmoothL1LossInputs, check_inputs, cpu, cuda};
use crate::check;
use crate::cpu::CpuArgs;
use crate::{Cost, Op, OpError, Role, TensorDesc};

/// `grad_output * d loss / d pred`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SmoothL1LossGrad {
    /// Where the quadratic part ends, in units of the deltas.
    pub beta: f32,
    /// Images whose rows share a mean.
    pub ipg: usize,
}

const NAME: &str = "smooth_l1_loss_grad";

impl Op for SmoothL1LossGrad {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(NAME, "inputs", inputs, SmoothL1LossInputs::LEN + 1)?;
        check::arity(NAME, "updates", updates, 0)?;
        check_inputs(NAME, self.beta, self.ipg, inputs)?;
        check::floats(NAME, "grad_output", &inputs[SmoothL1LossInputs::LEN], &[1])?;
        Ok(vec![TensorDesc::new(Role::Gradient, &inputs[0].shape)])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 4 * inputs[0].len() as u64)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::grad_launches(self.beta, self.ipg, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let rows = cpu::Rows::of(args, self.beta, self.ipg);
        let grad_output = args.inputs[SmoothL1LossInputs::LEN].f32()[0];
        rows.grad(grad_output, args.outputs[0].f32());
    }
}
