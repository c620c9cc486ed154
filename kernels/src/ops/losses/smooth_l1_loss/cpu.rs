//! CPU reference of `smooth_l1_loss` and its gradient.

use super::{SmoothL1Loss, SmoothL1LossInputs};
use crate::cpu::CpuArgs;
use crate::losses::{RowWeights, smooth_l1, sum_rows};

/// The rows of the loss.
pub(super) struct Rows<'a> {
    pred: &'a [f32],
    target: &'a [f32],
    labels: &'a [i32],
    weights: RowWeights<'a>,
    beta: f32,
}

impl<'a> Rows<'a> {
    /// Reads the inputs in the order of the contract.
    pub(super) fn of(args: &CpuArgs<'a>, op: SmoothL1Loss) -> Self {
        let inputs = SmoothL1LossInputs::of(&args.inputs);
        let labels = inputs.labels.i32();
        let (image_idx, num_images) = (inputs.image_idx.i32(), inputs.num_images.i32());
        let SmoothL1Loss { beta, ipg, rows_per_image } = op;
        let counts = |row: usize| labels[row] >= 0;
        let weights = RowWeights::over(rows_per_image, ipg, num_images, image_idx, counts);
        Self { pred: inputs.pred.f32(), target: inputs.target.f32(), labels, weights, beta }
    }

    /// The loss.
    pub(super) fn loss(&self) -> f32 {
        sum_rows(self.labels.len(), |row| {
            let terms = self.row(row).map(|(loss, _)| f64::from(loss));
            self.weight(row) * terms.iter().sum::<f64>()
        })
    }

    /// Its gradient times `grad_output`.
    pub(super) fn grad(&self, grad_output: f32, grad_pred: &mut [f32]) {
        for (row, g) in grad_pred.chunks_exact_mut(4).enumerate() {
            let weight = f64::from(grad_output) * self.weight(row);
            for (g, (_, slope)) in g.iter_mut().zip(self.row(row)) {
                *g = (weight * f64::from(slope)) as f32;
            }
        }
    }

    fn weight(&self, row: usize) -> f64 {
        if self.labels[row] > 0 { self.weights.of(row) } else { 0.0 }
    }

    /// Loss and slope of the four deltas; zeros where the row weighs nothing, so that a prediction
    /// that is not a number does not leak from an ignored row.
    fn row(&self, row: usize) -> [(f32, f32); 4] {
        if self.weight(row) == 0.0 {
            return [(0.0, 0.0); 4];
        }
        std::array::from_fn(|i| {
            let idx = 4 * row + i;
            smooth_l1(self.pred[idx] - self.target[idx], self.beta)
        })
    }
}
