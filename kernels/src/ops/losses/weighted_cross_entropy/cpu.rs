//! CPU reference of `weighted_cross_entropy` and its gradient.

use rayon::prelude::*;

use super::{WeightedCrossEntropy, WeightedCrossEntropyInputs};
use crate::cpu::CpuArgs;
use crate::losses::{exponentials, sum_rows};

/// The rows of the loss.
pub(super) struct Rows<'a> {
    op: &'a WeightedCrossEntropy,
    logits: &'a [f32],
    labels: &'a [i32],
    image_idx: &'a [i32],
    num_images: usize,
    /// Factor of a row of each group: 1 / (sum of its rows' weights * groups).
    scales: Vec<f64>,
}

impl<'a> Rows<'a> {
    /// Reads the inputs in the order of the contract.
    pub(super) fn of(args: &CpuArgs<'a>, op: &'a WeightedCrossEntropy) -> Self {
        let inputs = WeightedCrossEntropyInputs::of(&args.inputs);
        let (labels, image_idx) = (inputs.labels.i32(), inputs.image_idx.i32());
        let num_images = usize::try_from(inputs.num_images.i32()[0]).unwrap_or(0);
        let groups = num_images.div_ceil(op.ipg);
        let logits = inputs.logits.f32();
        let scales = vec![0.0; groups];
        let mut rows = Self { op, logits, labels, image_idx, num_images, scales };
        for row in 0..labels.len() {
            if let Some((label, group)) = rows.counted(row) {
                rows.scales[group] += rows.weight(label);
            }
        }
        for sum in &mut rows.scales {
            *sum = if *sum > 0.0 { 1.0 / (*sum * groups as f64) } else { 0.0 };
        }
        rows
    }

    /// The loss.
    pub(super) fn loss(&self) -> f32 {
        let (smooth, share) = self.shares();
        sum_rows(self.labels.len(), 256, |row| {
            let Some((label, group)) = self.counted(row) else { return 0.0 };
            let logits = self.row(row);
            let (max, sum) = exponentials(logits);
            let cost =
                |class: usize| self.weight(class) * (sum.ln() + max - f64::from(logits[class]));
            let all: f64 = (0..logits.len()).map(cost).sum();
            self.scales[group] * (smooth * cost(label) + share * all)
        })
    }

    /// Its gradient times `grad_output`.
    pub(super) fn grad(&self, grad_output: f32, grad_logits: &mut [f32]) {
        let (smooth, share) = self.shares();
        let total: f64 = self.op.class_weights.iter().map(|&weight| f64::from(weight)).sum();
        grad_logits.par_chunks_mut(self.classes()).enumerate().for_each(|(row, g)| {
            let Some((label, group)) = self.counted(row) else {
                g.fill(0.0);
                return;
            };
            let scale = f64::from(grad_output) * self.scales[group];
            let logits = self.row(row);
            let (max, sum) = exponentials(logits);
            let own = smooth * self.weight(label);
            for (class, (g, &x)) in g.iter_mut().zip(logits).enumerate() {
                let probability = (f64::from(x) - max).exp() / sum;
                let truth = if class == label { own } else { 0.0 };
                let pull = (own + share * total) * probability;
                *g = (scale * (pull - truth - share * self.weight(class))) as f32;
            }
        });
    }

    fn classes(&self) -> usize {
        self.op.class_weights.len()
    }

    fn weight(&self, class: usize) -> f64 {
        f64::from(self.op.class_weights[class])
    }

    /// The share of a row's own class, and that of each class beside it.
    fn shares(&self) -> (f64, f64) {
        let smoothing = f64::from(self.op.label_smoothing);
        (1.0 - smoothing, smoothing / self.classes() as f64)
    }

    fn row(&self, row: usize) -> &'a [f32] {
        &self.logits[row * self.classes()..][..self.classes()]
    }

    /// Class and group of a row that counts.
    fn counted(&self, row: usize) -> Option<(usize, usize)> {
        let label = usize::try_from(self.labels[row]).ok()?;
        assert!(label < self.classes(), "label {label} of {} classes", self.classes());
        let image = usize::try_from(self.image_idx[row]).ok()?;
        (image < self.num_images).then_some((label, image / self.op.ipg))
    }
}
