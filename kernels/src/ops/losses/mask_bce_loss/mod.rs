//! Binary cross-entropy of mask logits: `loss_mask`.
//!
//! Matches the mask losses of torchvision and maskrcnn-benchmark for the channel of each row's
//! class, the only one that counts (`class_masks`): the mean over positives x S x S of a group of
//! images, averaged over the groups that hold images. Targets may be soft.
//! Tensors: `mask_logits [M, S, S]` f32, `labels [M]` i32 (above 0; 0 and -1 = not a positive),
//! `targets [M, S, S]` f32 in 0..1, `image_idx [M]`, `count [1]` (rows in use), `num_images [1]`
//! i32 (all in) -> `loss [1]` (overwritten).
//! Numerics: softplus form, summed in f64 (CUDA: f32) in a fixed order. Edges: no positive row
//! gives 0.

mod cases;
mod cpu;
mod cuda;
mod grad;
#[cfg(test)]
mod tests;

use device::{Gpu, Launch, LaunchArgs};

use crate::check;
use crate::cpu::CpuArgs;
use crate::losses::{backward_rule, check_group};
use crate::{BackwardRule, Cost, Op, OpError, Role, TensorDesc};

pub use cases::cases;

/// Mean binary cross-entropy of the mask logits of positive rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaskBceLoss {
    /// Images whose rows share a mean.
    pub ipg: usize,
}

op_inputs! {
    /// The inputs of [`MaskBceLoss`].
    pub struct MaskBceLossInputs {
        /// `[M, S, S]`.
        mask_logits,
        /// `[M]` i32.
        labels,
        /// `[M, S, S]` f32.
        targets,
        /// `[M]` i32.
        image_idx,
        /// Rows in use, `[1]` i32.
        count,
        /// `[1]` i32.
        num_images,
    }
}

const NAME: &str = "mask_bce_loss";

/// Checks the inputs of the loss and its gradient.
fn check_inputs(op: &'static str, ipg: usize, inputs: &[TensorDesc]) -> Result<(), OpError> {
    let inputs = MaskBceLossInputs::of(inputs);
    check::floats_ranked(op, "mask_logits", inputs.mask_logits, "[M, S, S]")?;
    check::floats(op, "targets", inputs.targets, &inputs.mask_logits.shape)?;
    check::integers(op, "count", inputs.count, &[1])?;
    let rows = inputs.mask_logits.dim(0);
    check_group(op, ipg, rows, [inputs.labels, inputs.image_idx, inputs.num_images])
}

impl Op for MaskBceLoss {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(NAME, "inputs", inputs, MaskBceLossInputs::LEN)?;
        check::arity(NAME, "updates", updates, 0)?;
        check_inputs(NAME, self.ipg, inputs)?;
        Ok(vec![TensorDesc::new(Role::Loss, &[1])])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 6 * MaskBceLossInputs::of(inputs).targets.len() as u64)
    }

    fn backward(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> BackwardRule {
        backward_rule(self)
    }

    fn cuda_workspace_bytes(
        &self,
        _gpu: &Gpu,
        inputs: &[TensorDesc],
        _outputs: &[TensorDesc],
    ) -> usize {
        cuda::workspace_bytes(MaskBceLossInputs::of(inputs).mask_logits)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(self.ipg, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let rows = cpu::Rows::of(args, self.ipg);
        args.outputs[0].f32()[0] = rows.loss();
    }
}
