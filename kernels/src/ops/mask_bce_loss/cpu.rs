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
    classes: usize,
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
            classes: shape[3],
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
                let Some((class, weight)) = self.positive(row) else { return 0.0 };
                let first = row * self.pixels;
                let terms = (first..first + self.pixels).map(|pixel| {
                    let logit = self.logits[pixel * self.classes + class];
                    f64::from(bce_with_logits(logit, self.targets[pixel]).0)
                });
                weight * terms.sum::<f64>()
            })
            .collect();
        sums.iter().sum::<f64>() as f32
    }

    /// Its gradient times `grad_output`.
    pub(super) fn grad(&self, grad_output: f32, grad_logits: &mut [f32]) {
        let row_len = self.pixels * self.classes;
        if row_len == 0 {
            return;
        }
        grad_logits.par_chunks_mut(row_len).enumerate().for_each(|(row, g)| {
            g.fill(0.0);
            let Some((class, weight)) = self.positive(row) else { return };
            let weight = (f64::from(grad_output) * weight) as f32;
            for (i, g) in g.chunks_exact_mut(self.classes).enumerate() {
                let pixel = row * self.pixels + i;
                let logit = self.logits[pixel * self.classes + class];
                g[class] = weight * bce_with_logits(logit, self.targets[pixel]).1;
            }
        });
    }

    /// Class and weight (of one pixel) of a row that counts.
    fn positive(&self, row: usize) -> Option<(usize, f64)> {
        if row >= self.count || self.labels[row] <= 0 {
            return None;
        }
        let class = self.labels[row] as usize;
        assert!(class < self.classes, "label {class} of {} classes in row {row}", self.classes);
        let weight = self.weights.of(row) / self.pixels as f64;
        (weight > 0.0).then_some((class, weight))
    }
}
