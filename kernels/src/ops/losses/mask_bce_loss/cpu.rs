//! CPU reference of `mask_bce_loss` and its gradient.

use rayon::prelude::*;

use super::MaskBceLossInputs;
use crate::counted::rows_in_use;
use crate::cpu::CpuArgs;
use crate::losses::{RowWeights, bce_with_logits};

/// The rows of the loss.
pub(super) struct Rows<'a> {
    logits: &'a [f32],
    /// Pixels a row.
    pixels: usize,
    labels: &'a [i32],
    targets: &'a [f32],
    count: usize,
    weights: RowWeights<'a>,
}

impl<'a> Rows<'a> {
    /// Reads the inputs in the order of the contract.
    pub(super) fn of(args: &CpuArgs<'a>, ipg: usize) -> Self {
        let inputs = MaskBceLossInputs::of(&args.inputs);
        let labels = inputs.labels.i32();
        let (image_idx, num_images) = (inputs.image_idx.i32(), inputs.num_images.i32());
        let count = rows_in_use(inputs.count.i32(), labels.len());
        let shape = inputs.mask_logits.shape();
        Self {
            logits: inputs.mask_logits.f32(),
            pixels: shape[1] * shape[2],
            labels,
            targets: inputs.targets.f32(),
            count,
            weights: RowWeights::new(ipg, num_images, image_idx, |row| {
                row < count && labels[row] > 0
            }),
        }
    }

    /// The loss. A row is a task: its sum is a whole one, and rows are added in order.
    pub(super) fn loss(&self) -> f32 {
        let sums: Vec<f64> = (0..self.labels.len())
            .into_par_iter()
            .map(|row| {
                let Some(weight) = self.positive(row) else { return 0.0 };
                let first = row * self.pixels;
                let terms = (first..first + self.pixels).map(|pixel| {
                    f64::from(bce_with_logits(self.logits[pixel], self.targets[pixel]).0)
                });
                weight * terms.sum::<f64>()
            })
            .collect();
        sums.iter().sum::<f64>() as f32
    }

    /// Its gradient times `grad_output`.
    pub(super) fn grad(&self, grad_output: f32, grad_logits: &mut [f32]) {
        if self.pixels == 0 {
            return;
        }
        grad_logits.par_chunks_mut(self.pixels).enumerate().for_each(|(row, g)| {
            let Some(weight) = self.positive(row) else { return g.fill(0.0) };
            let weight = (f64::from(grad_output) * weight) as f32;
            for (pixel, g) in (row * self.pixels..).zip(g) {
                *g = weight * bce_with_logits(self.logits[pixel], self.targets[pixel]).1;
            }
        });
    }

    /// Weight of one pixel of a row that counts.
    fn positive(&self, row: usize) -> Option<f64> {
        if row >= self.count || self.labels[row] <= 0 {
            return None;
        }
        let weight = self.weights.of(row) / self.pixels as f64;
        (weight > 0.0).then_some(weight)
    }
}
