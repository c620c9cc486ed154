//! Gradient of `mask_bce_loss` by its logits.
//!
//! Tensors: those of the loss, then `grad_output [1]` (all in) -> `grad_mask_logits
//! [M, S, S, K+1]` (overwritten; 0 in other channels and in rows that are not positive).

use device::{Launch, LaunchArgs};

use super::{MaskBceLossInputs, check_inputs, cpu, cuda};
use crate::check;
use crate::cpu::CpuArgs;
use crate::{Cost, Op, OpError, Role, TensorDesc};

/// `grad_output * d loss / d mask_logits`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaskBceLossGrad {
    /// Images whose rows share a mean.
    pub ipg: usize,
}

const NAME: &str = "mask_bce_loss_grad";

impl Op for MaskBceLossGrad {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(NAME, "inputs", inputs, MaskBceLossInputs::LEN + 1)?;
        check::arity(NAME, "updates", updates, 0)?;
        check_inputs(NAME, self.ipg, inputs)?;
        check::floats(NAME, "grad_output", &inputs[MaskBceLossInputs::LEN], &[1])?;
        Ok(vec![TensorDesc::new(Role::Gradient, &inputs[0].shape)])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 5 * inputs[2].len() as u64)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::grad_launches(self.ipg, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let rows = cpu::Rows::of(args, self.ipg);
        let grad_output = args.inputs[MaskBceLossInputs::LEN].f32()[0];
        rows.grad(grad_output, args.outputs[0].f32());
    }
}
