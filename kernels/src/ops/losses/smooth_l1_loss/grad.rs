//! Gradient of `smooth_l1_loss` by its predictions.
//!
//! Tensors: those of the loss, then `grad_output [1]` (all in) -> `grad_pred [M, 4]`
//! (overwritten; 0 in rows without a positive label).

use device::{Launch, LaunchArgs};

use super::{SmoothL1Loss, SmoothL1LossInputs, check_inputs, cpu, cuda};
use crate::cpu::CpuArgs;
use crate::losses::Loss;
use crate::{OpError, TensorDesc};

impl Loss for SmoothL1Loss {
    const GRAD_NAME: &'static str = "smooth_l1_loss_grad";
    const NUM_INPUTS: usize = SmoothL1LossInputs::LEN;

    fn check(&self, op: &'static str, inputs: &[TensorDesc]) -> Result<(), OpError> {
        check_inputs(op, self.beta, self.ipg, inputs)
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
