//! Loss 1 - GIoU of decoded boxes: a box loss in pixels instead of deltas.
//!
//! Matches torchvision's `generalized_box_iou_loss` (eps 1e-7) after `BoxCoder.decode`: the sum
//! over the rows of a group of images with a positive label, divided by the group's rows whose
//! label is not -1, averaged over the groups that hold images.
//! Tensors: `deltas [M, 4]`, `rois [M, 4]`, `matched_boxes [M, 4]` f32, `labels [M]`,
//! `image_idx [M]`, `num_images [1]` i32 (all in) -> `loss [1]` (overwritten).
//! Numerics: f64, fixed order. Edges: M = 0 or no positive row give 0; boxes without area give a
//! finite loss; dw and dh above ln(1000/16) get no gradient.

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

/// 1 - GIoU of positives over all sampled rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GiouLoss {
    /// Weights of dx, dy, dw, dh in the box coding.
    pub weights: [f32; 4],
    /// Images whose rows share a mean.
    pub ipg: usize,
}

op_inputs! {
    /// The inputs of [`GiouLoss`].
    pub struct GiouLossInputs {
        /// `[M, 4]`.
        deltas,
        /// `[M, 4]` f32.
        rois,
        /// `[M, 4]` f32.
        matched_boxes,
        /// `[M]` i32.
        labels,
        /// `[M]` i32.
        image_idx,
        /// `[1]` i32.
        num_images,
    }
}

const NAME: &str = "giou_loss";

/// Checks the inputs of the loss and its gradient.
fn check_inputs(
    op: &'static str,
    weights: [f32; 4],
    ipg: usize,
    inputs: &[TensorDesc],
) -> Result<(), OpError> {
    let inputs = GiouLossInputs::of(inputs);
    let rows = inputs.deltas.shape.first().copied().unwrap_or(0);
    check::floats(op, "deltas", inputs.deltas, &[rows, 4])?;
    check::floats(op, "rois", inputs.rois, &[rows, 4])?;
    check::floats(op, "matched_boxes", inputs.matched_boxes, &[rows, 4])?;
    let positive = weights.iter().all(|&w| w > 0.0);
    check::parameter(op, "weights", positive, "above 0", format!("{weights:?}"))?;
    check_group(op, ipg, rows, [inputs.labels, inputs.image_idx, inputs.num_images])
}

impl Op for GiouLoss {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(NAME, "inputs", inputs, GiouLossInputs::LEN)?;
        check::arity(NAME, "updates", updates, 0)?;
        check_inputs(NAME, self.weights, self.ipg, inputs)?;
        Ok(vec![TensorDesc::new(Role::Loss, &[1])])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 12 * GiouLossInputs::of(inputs).deltas.len() as u64)
    }

    fn backward(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> BackwardRule {
        backward_rule(self)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let rows = cpu::Rows::of(args, self.weights, self.ipg);
        args.outputs[0].f32()[0] = rows.loss();
    }
}
