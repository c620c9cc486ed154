//! Gradient of `softmax_cross_entropy` by its logits.
//!
//! Tensors: those of the loss, then `grad_output [1]` (all in) -> `grad_logits [M, K+1]`
//! (overwritten; 0 in rows that the loss ignores).

use device::{Launch, LaunchArgs};

use super::{SoftmaxCrossEntropyInputs, check_inputs, cpu, cuda};
use crate::check;
use crate::cpu::CpuArgs;
use crate::{Cost, Op, OpError, Role, TensorDesc};

/// `grad_output * d loss / d logits`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SoftmaxCrossEntropyGrad {
    /// Images whose rows share a mean.
    pub ipg: usize,
}

const NAME: &str = "softmax_cross_entropy_grad";

impl Op for SoftmaxCrossEntropyGrad {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(NAME, "inputs", inputs, SoftmaxCrossEntropyInputs::LEN + 1)?;
        check::arity(NAME, "updates", updates, 0)?;
        check_inputs(NAME, self.ipg, inputs)?;
        check::floats(NAME, "grad_output", &inputs[SoftmaxCrossEntropyInputs::LEN], &[1])?;
        Ok(vec![TensorDesc::new(Role::Gradient, &inputs[0].shape)])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 4 * inputs[0].len() as u64)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::grad_launches(self.ipg, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let rows = cpu::Rows::of(args, self.ipg);
        let grad_output = args.inputs[SoftmaxCrossEntropyInputs::LEN].f32()[0];
        rows.grad(grad_output, args.outputs[0].f32());
    }
}
