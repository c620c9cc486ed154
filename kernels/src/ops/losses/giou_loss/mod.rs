//! Loss 1 - GIoU of decoded boxes: a box loss in pixels instead of deltas.

mod cases;

use device::StructArg;

use crate::cpu::TensorRef;
use crate::losses::row_loss::{RowLaunch, RowLoss};
use crate::losses::{decode_box, decode_box_grad, giou_loss, row_loss};
use crate::op;

pub use cases::cases;

op! {
    /// Sum of 1 - GIoU over positive rows, divided by the number of sampled rows.
    ///
    /// Matches torchvision's `generalized_box_iou_loss` (eps 1e-7) after `BoxCoder.decode`: the
    /// loss of a group of images is the sum over its rows with a positive label, divided by the
    /// number of its rows whose label is not -1. The result is the mean over the groups that have
    /// images. Numerics: f64, fixed order. Edge cases: without positive rows the loss is 0;
    /// zero-area boxes have a finite loss; dw and dh above ln(1000/16) get no gradient.
    #[derive(Copy)]
    pub struct GiouLoss = "giou_loss" {
        /// Weights of dx, dy, dw, dh in the box coding.
        pub weights: [f32; 4] [|weights| weights.iter().all(|&w| w > 0.0), "above 0"],
        /// Images per group; the loss is averaged over the rows of a group.
        pub ipg: usize [|ipg| *ipg > 0, "at least 1"],
    }
    in GiouLossInputs {
        /// Box deltas.
        deltas: real "[M, 4]",
        /// Boxes to which the deltas are applied.
        rois: f32 "[M, 4]",
        /// Ground truth of the row.
        matched_boxes: f32 "[M, 4]",
        /// Above 0: positive; -1: not sampled.
        labels: i32 "[M]",
        /// Image of each row.
        image_idx: i32 "[M]",
        /// Number of images in use.
        num_images: i32 "[1]",
    }
    out {
        /// Mean over the groups that have images.
        loss: Loss "[1]",
    }
}

row_loss!(GiouLoss, "giou_loss");

impl GiouLoss {
    /// Deltas and RoI of a row, its loss, and the derivatives of the loss with respect to the
    /// decoded corners.
    fn row(&self, inputs: &[TensorRef<'_>], row: usize) -> ([[f32; 4]; 2], f32, [f32; 4]) {
        let of = GiouLossInputs::of(inputs);
        let four = |of: &TensorRef<'_>| std::array::from_fn(|i| of.f32()[4 * row + i]);
        let (deltas, roi) = (four(of.deltas), four(of.rois));
        let pred = decode_box(deltas, roi, self.weights);
        let (loss, corners) = giou_loss(pred, four(of.matched_boxes));
        ([deltas, roi], loss, corners)
    }
}

impl RowLoss for GiouLoss {
    const LAUNCH: RowLaunch = RowLaunch::Thread(256);
    const FLOPS: [u64; 2] = [12, 40];
    const LOSS_FROM: i32 = 1;

    fn mean(&self) -> (usize, Option<usize>) {
        (self.ipg, None)
    }

    fn parameters(&self, arg: StructArg, _columns: i32) -> StructArg {
        arg.field(self.weights)
    }

    fn loss(&self, inputs: &[TensorRef<'_>], row: usize) -> f64 {
        f64::from(self.row(inputs, row).1)
    }

    fn gradient(&self, inputs: &[TensorRef<'_>], row: usize, scale: f64, g: &mut [f32]) {
        let ([deltas, roi], _, corners) = self.row(inputs, row);
        let slopes = decode_box_grad(deltas, roi, self.weights, corners);
        for (g, slope) in g.iter_mut().zip(slopes) {
            *g = (scale * f64::from(slope)) as f32;
        }
    }
}
