//! Softmax cross-entropy: `loss_classifier` of the box head, `loss_keypoint` over a map's cells.
//!
//! Matches `torch.nn.functional.cross_entropy`, mean over the rows of a group of images whose
//! label is not -1, averaged over the groups that hold images; or, as detectron2's keypoints, the
//! sum over a stated number of rows for each image of the group.
//! Tensors: `logits [M, K+1]` f32, `labels [M]` i32 (0 = background, -1 = ignored),
//! `image_idx [M]`, `num_images [1]` i32 (all in) -> `loss [1]` (overwritten).
//! Numerics: maximum subtracted, exponentials and sums in f64 (CUDA: f32), fixed order. Edges:
//! M = 0 or no counted row give 0.

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

/// Mean cross-entropy of class logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SoftmaxCrossEntropy {
    /// Images whose rows share a mean.
    pub ipg: usize,
    /// Rows that each image of a group counts for in the divisor; `None`: those that count.
    pub rows_per_image: Option<usize>,
}

op_inputs! {
    /// The inputs of [`SoftmaxCrossEntropy`].
    pub struct SoftmaxCrossEntropyInputs {
        /// `[M, K+1]`.
        logits,
        /// `[M]` i32.
        labels,
        /// `[M]` i32.
        image_idx,
        /// `[1]` i32.
        num_images,
    }
}

const NAME: &str = "softmax_cross_entropy";

/// Checks the inputs of the loss and its gradient.
fn check_inputs(op: &'static str, ipg: usize, inputs: &[TensorDesc]) -> Result<(), OpError> {
    let inputs = SoftmaxCrossEntropyInputs::of(inputs);
    check::floats_ranked(op, "logits", inputs.logits, "[M, K+1]")?;
    let classes = inputs.logits.shape[1];
    check::parameter(op, "K+1", classes > 0, "at least 1", classes)?;
    check_group(
        op,
        ipg,
        inputs.logits.shape[0],
        [inputs.labels, inputs.image_idx, inputs.num_images],
    )
}

impl Op for SoftmaxCrossEntropy {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(NAME, "inputs", inputs, SoftmaxCrossEntropyInputs::LEN)?;
        check::arity(NAME, "updates", updates, 0)?;
        check_inputs(NAME, self.ipg, inputs)?;
        Ok(vec![TensorDesc::new(Role::Loss, &[1])])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(
            inputs,
            outputs,
            4 * SoftmaxCrossEntropyInputs::of(inputs).logits.len() as u64,
        )
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
        cuda::workspace_bytes(SoftmaxCrossEntropyInputs::of(inputs).logits)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(*self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let rows = cpu::Rows::of(args, *self);
        args.outputs[0].f32()[0] = rows.loss();
    }
}
