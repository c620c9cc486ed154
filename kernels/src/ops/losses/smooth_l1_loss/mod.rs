//! Smooth L1 loss of box deltas: `loss_rpn_box_reg` and `loss_box_reg`.

mod cases;

use device::StructArg;

use crate::cpu::TensorRef;
use crate::losses::row_loss::{RowLaunch, RowLoss};
use crate::losses::{row_loss, smooth_l1};
use crate::op;

pub use cases::cases;

op! {
    /// Sum of the smooth L1 loss over positive rows, divided by the number of sampled rows.
    ///
    /// Matches the box losses of torchvision and maskrcnn-benchmark: the loss of a group of images
    /// is the sum over its rows with a positive label, divided by the number of its rows whose
    /// label is not -1 (all sampled rows) or, as in detectron2's RPN, by a fixed number of rows per
    /// image of the group. The result is the mean over the groups that have images. Numerics:
    /// summed in f64 (CUDA: f32) in a fixed order. Edge cases: without positive rows the loss is 0.
    #[derive(Copy)]
    pub struct SmoothL1Loss = "smooth_l1_loss" {
        /// Where the quadratic part ends, in units of the deltas; 0 is L1.
        pub beta: f32 [|beta| *beta >= 0.0, "0 or more"],
        /// Images per group; the loss is averaged over the rows of a group.
        pub ipg: usize [|ipg| *ipg > 0, "at least 1"],
        /// Divisor of the sum, in rows per image; `None`: the number of rows whose label is not -1.
        pub rows_per_image: Option<usize>,
    }
    in SmoothL1LossInputs {
        /// Predicted deltas.
        pred: real "[M, 4]",
        /// Deltas to the ground truth.
        target: f32 "[M, 4]",
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

row_loss!(SmoothL1Loss, "smooth_l1_loss");

impl SmoothL1Loss {
    /// Loss and derivative of the deltas of a row.
    fn row(&self, inputs: &[TensorRef<'_>], row: usize) -> [(f32, f32); 4] {
        let of = SmoothL1LossInputs::of(inputs);
        let (pred, target) = (&of.pred.f32()[4 * row..], &of.target.f32()[4 * row..]);
        std::array::from_fn(|i| smooth_l1(pred[i] - target[i], self.beta))
    }
}

impl RowLoss for SmoothL1Loss {
    const LAUNCH: RowLaunch = RowLaunch::Thread(1024);
    const FLOPS: [u64; 2] = [5, 4];
    const LOSS_FROM: i32 = 1;

    fn mean(&self) -> (usize, Option<usize>) {
        (self.ipg, self.rows_per_image)
    }

    fn parameters(&self, arg: StructArg, _columns: i32) -> StructArg {
        arg.field(self.beta)
    }

    fn loss(&self, inputs: &[TensorRef<'_>], row: usize) -> f64 {
        self.row(inputs, row).map(|(loss, _)| f64::from(loss)).iter().sum()
    }

    fn gradient(&self, inputs: &[TensorRef<'_>], row: usize, scale: f64, g: &mut [f32]) {
        for (g, (_, slope)) in g.iter_mut().zip(self.row(inputs, row)) {
            *g = (scale * f64::from(slope)) as f32;
        }
    }
}
