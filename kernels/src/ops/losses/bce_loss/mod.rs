//! Binary cross-entropy of logits: the objectness loss of the RPN.

mod cases;

use crate::cpu::TensorRef;
use crate::losses::row_loss::{RowLaunch, RowLoss};
use crate::losses::{bce_with_logits, row_loss};
use crate::op;

pub use cases::cases;

op! {
    /// Mean binary cross-entropy of logits.
    ///
    /// Matches `binary_cross_entropy_with_logits`. The loss of a group of images is the mean over
    /// its rows whose label is not -1 or, as in detectron2's RPN, their sum divided by a fixed
    /// number of rows per image of the group. The result is the mean over the groups that have
    /// images. Numerics: softplus form, summed in f64 (CUDA: f32) in a fixed order. Edge cases: the
    /// loss is 0 if all labels are -1.
    #[derive(Copy, Eq)]
    pub struct BceLoss = "bce_loss" {
        /// Images per group; the loss is averaged over the rows of a group.
        pub ipg: usize [|ipg| *ipg > 0, "at least 1"],
        /// Divisor of the sum, in rows per image; `None`: the number of rows whose label is not -1.
        pub rows_per_image: Option<usize>,
    }
    in BceLossInputs {
        /// One logit per row.
        logits: real "[M, ..]",
        /// 1, 0, or -1: ignored.
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

row_loss!(BceLoss, "bce_loss");

impl BceLoss {
    /// Loss and derivative of a row.
    fn row(inputs: &[TensorRef<'_>], row: usize) -> (f32, f32) {
        let of = BceLossInputs::of(inputs);
        let target = if of.labels.i32()[row] > 0 { 1.0 } else { 0.0 };
        bce_with_logits(of.logits.f32()[row], target)
    }
}

impl RowLoss for BceLoss {
    const LAUNCH: RowLaunch = RowLaunch::Thread(1024);
    const COLUMNS: Option<usize> = Some(1);
    const FLOPS: [u64; 2] = [6, 5];
    const LOSS_FROM: i32 = 0;

    fn mean(&self) -> (usize, Option<usize>) {
        (self.ipg, self.rows_per_image)
    }

    fn loss(&self, inputs: &[TensorRef<'_>], row: usize) -> f64 {
        f64::from(Self::row(inputs, row).0)
    }

    fn gradient(&self, inputs: &[TensorRef<'_>], row: usize, scale: f64, g: &mut [f32]) {
        g[0] = (scale * f64::from(Self::row(inputs, row).1)) as f32;
    }
}
