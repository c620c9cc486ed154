//! Gradient of `softmax_cross_entropy` by its logits.
//!
//! Tensors: those of the loss, then `grad_output [1]` (all in) -> `grad_logits [M, K+1]`
//! (overwritten; 0 in rows that the loss ignores).

use device::{Launch, LaunchArgs};

use super::{SoftmaxCrossEntropy, SoftmaxCrossEntropyInputs, check_inputs, cpu, cuda};
use crate::cpu::CpuArgs;
use crate::losses::Loss;
use crate::{OpError, TensorDesc};

impl Loss for SoftmaxCrossEntropy {
    const GRAD_NAME: &'static str = "softmax_cross_entropy_grad";
    const NUM_INPUTS: usize = SoftmaxCrossEntropyInputs::LEN;

    fn check(&self, op: &'static str, inputs: &[TensorDesc]) -> Result<(), OpError> {
        check_inputs(op, self.ipg, inputs)
    }

    fn grad_flops(inputs: &[TensorDesc]) -> u64 {
        4 * inputs[0].len() as u64
    }

    fn grad_launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::grad_launches(*self, args)
    }

    fn run_grad(&self, grad_output: f32, args: &mut CpuArgs<'_>) {
        cpu::Rows::of(args, *self).grad(grad_output, args.outputs[0].f32());
    }
}
