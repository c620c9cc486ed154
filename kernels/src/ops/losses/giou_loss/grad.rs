//! Gradient of `giou_loss` by its deltas.
//!
//! Tensors: those of the loss, then `grad_output [1]` (all in) -> `grad_deltas [M, 4]`
//! (overwritten; 0 in rows without a positive label).

use device::{Launch, LaunchArgs};

use super::{GiouLoss, GiouLossInputs, check_inputs, cpu, cuda};
use crate::cpu::CpuArgs;
use crate::losses::Loss;
use crate::{OpError, TensorDesc};

impl Loss for GiouLoss {
    const GRAD_NAME: &'static str = "giou_loss_grad";
    const NUM_INPUTS: usize = GiouLossInputs::LEN;

    fn check(&self, op: &'static str, inputs: &[TensorDesc]) -> Result<(), OpError> {
        check_inputs(op, self.weights, self.ipg, inputs)
    }

    fn grad_flops(inputs: &[TensorDesc]) -> u64 {
        40 * inputs[0].len() as u64
    }

    fn grad_launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::backward(self.weights, self.ipg, args)
    }

    fn run_grad(&self, grad_output: f32, args: &mut CpuArgs<'_>) {
        cpu::Rows::of(args, self.weights, self.ipg).grad(grad_output, args.outputs[0].f32());
    }
}
