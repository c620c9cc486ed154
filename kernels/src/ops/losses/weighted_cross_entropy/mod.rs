//! Cross-entropy with weights of classes and label smoothing: `loss_classifier` of a box head that
//! has either.
//!
//! Matches `torch.nn.functional.cross_entropy` with `weight` and `label_smoothing`, mean over the
//! rows of a group of images whose label is not -1, averaged over the groups that hold images. A
//! row of class `t` costs `(1 - s) w[t] l[t] + s / (K+1) * sum over c of w[c] l[c]`, where `l` is
//! minus the logarithm of its probabilities; the mean of a group divides by the sum of its `w[t]`.
//! Tensors: `logits [M, K+1]` f32, `labels [M]` i32 (0 = background, -1 = ignored),
//! `image_idx [M]`, `num_images [1]` i32 (all in) -> `loss [1]` (overwritten).
//! Numerics: maximum subtracted, exponentials and sums in f64 (CUDA: f32), fixed order. Edges:
//! M = 0, no counted row, or a group whose rows all weigh 0, give 0.

mod cases;
mod cpu;
mod cuda;
mod grad;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use device::{Gpu, Launch, LaunchArgs};

use crate::check;
use crate::cpu::CpuArgs;
use crate::losses::{backward_rule, check_group};
use crate::{BackwardRule, Cost, Op, OpError, Role, TensorDesc};

pub use cases::cases;

/// Weighted mean cross-entropy of class logits.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightedCrossEntropy {
    /// Images whose rows share a mean.
    pub ipg: usize,
    /// Weight of each class, background first; at least 0.
    pub class_weights: Arc<[f32]>,
    /// Share of a row's truth that all classes have alike, 0 to 1.
    pub label_smoothing: f32,
}

op_inputs! {
    /// The inputs of [`WeightedCrossEntropy`].
    pub struct WeightedCrossEntropyInputs {
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

const NAME: &str = "weighted_cross_entropy";

impl WeightedCrossEntropy {
    /// Checks the inputs of the loss and its gradient.
    fn check_inputs(&self, op: &'static str, inputs: &[TensorDesc]) -> Result<(), OpError> {
        let inputs = WeightedCrossEntropyInputs::of(inputs);
        check::floats_ranked(op, "logits", inputs.logits, "[M, K+1]")?;
        let (classes, weights) = (inputs.logits.shape[1], self.class_weights.len());
        let fits = classes > 0 && classes == weights;
        check::parameter(op, "class weights", fits, "one for each column of logits", weights)?;
        let smoothing = self.label_smoothing;
        let is_share = (0.0..=1.0).contains(&smoothing);
        check::parameter(op, "label_smoothing", is_share, "from 0 to 1", smoothing)?;
        check_group(
            op,
            self.ipg,
            inputs.logits.shape[0],
            [inputs.labels, inputs.image_idx, inputs.num_images],
        )
    }
}

impl Op for WeightedCrossEntropy {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(NAME, "inputs", inputs, WeightedCrossEntropyInputs::LEN)?;
        check::arity(NAME, "updates", updates, 0)?;
        self.check_inputs(NAME, inputs)?;
        Ok(vec![TensorDesc::new(Role::Loss, &[1])])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let logits = WeightedCrossEntropyInputs::of(inputs).logits.len() as u64;
        Cost::streaming(inputs, outputs, 6 * logits)
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
        cuda::workspace_bytes(WeightedCrossEntropyInputs::of(inputs).logits)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let rows = cpu::Rows::of(args, self);
        args.outputs[0].f32()[0] = rows.loss();
    }
}
