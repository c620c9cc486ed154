//! CPU reference of `giou_loss` and its gradient.

use super::GiouLossInputs;
use crate::cpu::CpuArgs;
use crate::losses::{RowWeights, decode_box, decode_box_grad, giou_loss, sum_rows};

/// The rows of the loss.
pub(super) struct Rows<'a> {
    deltas: &'a [f32],
    rois: &'a [f32],
    matched: &'a [f32],
    labels: &'a [i32],
    rows: RowWeights<'a>,
    weights: [f32; 4],
}

impl<'a> Rows<'a> {
    /// Reads the inputs in the order of the contract.
    pub(super) fn of(args: &CpuArgs<'a>, weights: [f32; 4], ipg: usize) -> Self {
        let inputs = GiouLossInputs::of(&args.inputs);
        let labels = inputs.labels.i32();
        let (image_idx, num_images) = (inputs.image_idx.i32(), inputs.num_images.i32());
        Self {
            deltas: inputs.deltas.f32(),
            rois: inputs.rois.f32(),
            matched: inputs.matched_boxes.f32(),
            labels,
            rows: RowWeights::new(ipg, num_images, image_idx, |row| labels[row] >= 0),
            weights,
        }
    }

    /// The loss.
    pub(super) fn loss(&self) -> f32 {
        sum_rows(self.labels.len(), |row| match self.weight(row) {
            0.0 => 0.0,
            weight => {
                let pred = decode_box(four(self.deltas, row), four(self.rois, row), self.weights);
                weight * f64::from(giou_loss(pred, four(self.matched, row)).0)
            }
        })
    }

    /// Its gradient times `grad_output`.
    pub(super) fn grad(&self, grad_output: f32, grad_deltas: &mut [f32]) {
        for (row, g) in grad_deltas.chunks_exact_mut(4).enumerate() {
            let weight = f64::from(grad_output) * self.weight(row);
            if self.weight(row) == 0.0 {
                g.fill(0.0);
                continue;
            }
            let (deltas, roi) = (four(self.deltas, row), four(self.rois, row));
            let pred = decode_box(deltas, roi, self.weights);
            let (_, corners) = giou_loss(pred, four(self.matched, row));
            let slopes = decode_box_grad(deltas, roi, self.weights, corners);
            for (g, slope) in g.iter_mut().zip(slopes) {
                *g = (weight * f64::from(slope)) as f32;
            }
        }
    }

    fn weight(&self, row: usize) -> f64 {
        if self.labels[row] > 0 { self.rows.of(row) } else { 0.0 }
    }
}

fn four(values: &[f32], row: usize) -> [f32; 4] {
    std::array::from_fn(|i| values[4 * row + i])
}
