//! CPU reference of `softmax_cross_entropy` and its gradient.

use rayon::prelude::*;

use super::{SoftmaxCrossEntropy, SoftmaxCrossEntropyInputs};
use crate::cpu::CpuArgs;
use crate::losses::{RowWeights, sum_rows};

/// The rows of the loss.
pub(super) struct Rows<'a> {
    logits: &'a [f32],
    classes: usize,
    labels: &'a [i32],
    weights: RowWeights<'a>,
}

impl<'a> Rows<'a> {
    /// Reads the inputs in the order of the contract.
    pub(super) fn of(args: &CpuArgs<'a>, op: SoftmaxCrossEntropy) -> Self {
        let inputs = SoftmaxCrossEntropyInputs::of(&args.inputs);
        let labels = inputs.labels.i32();
        let (image_idx, num_images) = (inputs.image_idx.i32(), inputs.num_images.i32());
        let SoftmaxCrossEntropy { ipg, rows_per_image } = op;
        let counts = |row: usize| labels[row] >= 0;
        let weights = RowWeights::over(rows_per_image, ipg, num_images, image_idx, counts);
        let classes = inputs.logits.shape()[1];
        Self { logits: inputs.logits.f32(), classes, labels, weights }
    }

    /// The loss.
    pub(super) fn loss(&self) -> f32 {
        sum_rows(self.labels.len(), |row| {
            let Some((label, weight)) = self.counted(row) else { return 0.0 };
            let logits = self.row(row);
            let (max, sum) = exponentials(logits);
            weight * (sum.ln() + max - f64::from(logits[label]))
        })
    }

    /// Its gradient times `grad_output`.
    pub(super) fn grad(&self, grad_output: f32, grad_logits: &mut [f32]) {
        grad_logits.par_chunks_mut(self.classes).enumerate().for_each(|(row, g)| {
            let Some((label, weight)) = self.counted(row) else {
                g.fill(0.0);
                return;
            };
            let weight = f64::from(grad_output) * weight;
            let logits = self.row(row);
            let (max, sum) = exponentials(logits);
            for (class, (g, &x)) in g.iter_mut().zip(logits).enumerate() {
                let truth = if class == label { 1.0 } else { 0.0 };
                *g = (weight * ((f64::from(x) - max).exp() / sum - truth)) as f32;
            }
        });
    }

    fn row(&self, row: usize) -> &'a [f32] {
        &self.logits[row * self.classes..][..self.classes]
    }

    /// Class and weight of a row that counts.
    fn counted(&self, row: usize) -> Option<(usize, f64)> {
        let label = usize::try_from(self.labels[row]).ok()?;
        assert!(label < self.classes, "label {label} of {} classes in row {row}", self.classes);
        let weight = self.weights.of(row);
        (weight > 0.0).then_some((label, weight))
    }
}

/// The greatest logit, and the sum of exp(logit - greatest).
fn exponentials(logits: &[f32]) -> (f64, f64) {
    let max = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    (max, logits.iter().map(|&x| (f64::from(x) - max).exp()).sum())
}
