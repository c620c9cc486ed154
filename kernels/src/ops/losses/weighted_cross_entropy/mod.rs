//! Cross-entropy with weights of classes and label smoothing: `loss_classifier` of a box head that
//! has either.

mod cases;
mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use device::{Launch, LaunchArgs};

use crate::contract::{Declared, Dims, Flops, Kernel};
use crate::cpu::CpuArgs;
use crate::losses::{Loss, backward_rule};
use crate::{BackwardRule, OpError, TensorDesc, check, op};

pub use cases::cases;

op! {
    /// Weighted mean cross-entropy of class logits.
    ///
    /// Matches `torch.nn.functional.cross_entropy` with `weight` and `label_smoothing`, mean over
    /// the rows of a group of images whose label is not -1, averaged over the groups that hold
    /// images. A row of class `t` costs `(1 - s) w[t] l[t] + s / (K+1) * sum over c of w[c] l[c]`,
    /// where `l` is minus the logarithm of its probabilities; the mean of a group divides by the
    /// sum of its `w[t]`.
    /// Numerics: maximum subtracted, exponentials and sums in f64 (CUDA: f32), fixed order. Edges:
    /// no counted row, or a group whose rows all weigh 0, give 0.
    pub struct WeightedCrossEntropy = "weighted_cross_entropy" {
        /// Images whose rows share a mean.
        pub ipg: usize [|ipg| *ipg > 0, "at least 1"],
        /// Weight of each class, background first; at least 0.
        pub class_weights: Arc<[f32]> [|weights| !weights.is_empty(), "one for each class"],
        /// Share of a row's truth that all classes have alike.
        pub label_smoothing: f32 [|share| (0.0..=1.0).contains(share), "from 0 to 1"],
    }
    in WeightedCrossEntropyInputs {
        /// A column per class.
        logits: real "[M, K+1]",
        /// Class (0 is background), or -1: ignored.
        labels: i32 "[M]",
        /// Image of each row.
        image_idx: i32 "[M]",
        /// Images in use.
        num_images: i32 "[1]",
    }
    out {
        /// Mean over the groups that hold images.
        loss: Loss "[1]",
    }
}

impl Kernel for WeightedCrossEntropy {
    const FLOPS: Flops = Flops::Input(6);

    fn check(&self, _inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        let (weights, columns) = (self.class_weights.len(), dims.get("K+1"));
        let expected = "one for each column of logits";
        check::parameter(Self::CONTRACT.op, "class_weights", weights == columns, expected, weights)
    }

    fn backward(&self, _inputs: &[TensorDesc]) -> BackwardRule {
        backward_rule(self)
    }

    fn cuda_workspace_bytes(&self, inputs: &[TensorDesc]) -> usize {
        cuda::workspace_bytes(&inputs[0])
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let rows = cpu::Rows::of(args, self);
        args.outputs[0].f32()[0] = rows.loss();
    }
}

impl Loss for WeightedCrossEntropy {
    const GRAD_NAME: &'static str = "weighted_cross_entropy_grad";

    fn grad_flops(inputs: &[TensorDesc]) -> u64 {
        6 * inputs[0].len() as u64
    }

    fn grad_workspace_bytes(inputs: &[TensorDesc]) -> usize {
        cuda::workspace_bytes(&inputs[0])
    }

    fn grad_launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::grad_launches(self, args)
    }

    fn run_grad(&self, grad_output: f32, args: &mut CpuArgs<'_>) {
        cpu::Rows::of(args, self).grad(grad_output, args.outputs[0].f32());
    }
}
