//! CPU reference of `bce_loss` and its gradient.

use super::{BceLoss, BceLossInputs};
use crate::cpu::CpuArgs;
use crate::losses::{RowWeights, bce_with_logits, sum_rows};

/// The rows of the loss.
pub(super) struct Rows<'a> {
    logits: &'a [f32],
    labels: &'a [i32],
    weights: RowWeights<'a>,
}

impl<'a> Rows<'a> {
    /// Reads the inputs in the order of the contract.
    pub(super) fn of(args: &CpuArgs<'a>, op: BceLoss) -> Self {
        let inputs = BceLossInputs::of(&args.inputs);
        let labels = inputs.labels.i32();
        let (image_idx, num_images) = (inputs.image_idx.i32(), inputs.num_images.i32());
        let counts = |row: usize| labels[row] >= 0;
        let BceLoss { ipg, rows_per_image } = op;
        let weights = RowWeights::over(rows_per_image, ipg, num_images, image_idx, counts);
        Self { logits: inputs.logits.f32(), labels, weights }
    }

    /// The loss.
    pub(super) fn loss(&self) -> f32 {
        sum_rows(self.logits.len(), |row| self.element(row, |(loss, _)| loss))
    }

    /// Its gradient times `grad_output`.
    pub(super) fn grad(&self, grad_output: f32, grad_logits: &mut [f32]) {
        for (row, g) in grad_logits.iter_mut().enumerate() {
            *g = (f64::from(grad_output) * self.element(row, |(_, slope)| slope)) as f32;
        }
    }

    /// Weighted loss or slope of a row; 0 if it is ignored, whatever its logit.
    fn element(&self, row: usize, pick: impl Fn((f32, f32)) -> f32) -> f64 {
        if self.labels[row] < 0 {
            return 0.0;
        }
        match self.weights.of(row) {
            0.0 => 0.0,
            weight => {
                let target = if self.labels[row] > 0 { 1.0 } else { 0.0 };
                weight * f64::from(pick(bce_with_logits(self.logits[row], target)))
            }
        }
    }
}
