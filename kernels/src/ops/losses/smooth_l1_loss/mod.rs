//! Smooth L1 loss of box deltas: `loss_rpn_box_reg` and `loss_box_reg`.
//!
//! Matches the box losses of torchvision and maskrcnn-benchmark: the sum over the rows of a group
//! of images with a positive label, divided by the group's rows whose label is not -1 (all that
//! were sampled), averaged over the groups that hold images. The divisor of detectron2's RPN is a
//! stated number of rows for each image of the group. `beta` 0 is L1.
//! Tensors: `pred [M, 4]`, `target [M, 4]` f32, `labels [M]` i32 (above 0 = positive, -1 =
//! ignored), `image_idx [M]`, `num_images [1]` i32 (all in) -> `loss [1]` (overwritten).
//! Numerics: summed in f64 (CUDA: f32) in a fixed order. Edges: M = 0 or no positive row give 0.

mod cases;
mod cpu;
mod cuda;
mod grad;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};

use crate::check;
use crate::cpu::CpuArgs;
use crate::losses::{backward_rule, check_group};
use crate::{BackwardRule, Cost, Op, OpError, Role, TensorDesc};

pub use cases::cases;

/// Smooth L1 of positives over all sampled rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SmoothL1Loss {
    /// Where the quadratic part ends, in units of the deltas.
    pub beta: f32,
    /// Images whose rows share a mean.
    pub ipg: usize,
    /// Rows of each image that the sum is divided by; `None`: the rows whose label is not -1.
    pub rows_per_image: Option<usize>,
}

op_inputs! {
    /// The inputs of [`SmoothL1Loss`].
    pub struct SmoothL1LossInputs {
        /// `[M, 4]`.
        pred,
        /// `[M, 4]` f32.
        target,
        /// `[M]` i32.
        labels,
        /// `[M]` i32.
        image_idx,
        /// `[1]` i32.
        num_images,
    }
}

const NAME: &str = "smooth_l1_loss";

/// Checks the inputs of the loss and its gradient.
fn check_inputs(
    op: &'static str,
    beta: f32,
    ipg: usize,
    inputs: &[TensorDesc],
) -> Result<(), OpError> {
    let inputs = SmoothL1LossInputs::of(inputs);
    let rows = inputs.pred.shape.first().copied().unwrap_or(0);
    check::floats(op, "pred", inputs.pred, &[rows, 4])?;
    check::floats(op, "target", inputs.target, &[rows, 4])?;
    check::parameter(op, "beta", beta >= 0.0, "0 or more", beta)?;
    check_group(op, ipg, rows, [inputs.labels, inputs.image_idx, inputs.num_images])
}

impl Op for SmoothL1Loss {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(NAME, "inputs", inputs, SmoothL1LossInputs::LEN)?;
        check::arity(NAME, "updates", updates, 0)?;
        check_inputs(NAME, self.beta, self.ipg, inputs)?;
        Ok(vec![TensorDesc::new(Role::Loss, &[1])])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 5 * SmoothL1LossInputs::of(inputs).pred.len() as u64)
    }

    fn backward(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> BackwardRule {
        backward_rule(self)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(*self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let rows = cpu::Rows::of(args, *self);
        args.outputs[0].f32()[0] = rows.loss();
    }
}
