//! Gradient of `mask_bce_loss` by its logits.
//!
//! Tensors: those of the loss, then `grad_output [1]` (all in) -> `grad_mask_logits
//! [M, S, S]` (overwritten; 0 in rows that are not positive).

use device::{Launch, LaunchArgs};

use super::{MaskBceLoss, MaskBceLossInputs, check_inputs, cpu, cuda};
use crate::cpu::CpuArgs;
use crate::losses::Loss;
use crate::{OpError, TensorDesc};

impl Loss for MaskBceLoss {
    const GRAD_NAME: &'static str = "mask_bce_loss_grad";
    const NUM_INPUTS: usize = MaskBceLossInputs::LEN;

    fn check(&self, op: &'static str, inputs: &[TensorDesc]) -> Result<(), OpError> {
        check_inputs(op, self.ipg, inputs)
    }

    fn grad_flops(inputs: &[TensorDesc]) -> u64 {
        5 * inputs[2].len() as u64
    }

    fn grad_launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::grad_launches(self.ipg, args)
    }

    fn run_grad(&self, grad_output: f32, args: &mut CpuArgs<'_>) {
        cpu::Rows::of(args, self.ipg).grad(grad_output, args.outputs[0].f32());
    }
}
