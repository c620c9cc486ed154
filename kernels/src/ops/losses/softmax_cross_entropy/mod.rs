//! Softmax cross-entropy: `loss_classifier` of the box head, `loss_keypoint` over map positions.

mod cases;

use device::StructArg;

use crate::cpu::TensorRef;
use crate::losses::row_loss::{RowLaunch, RowLoss};
use crate::losses::{exponentials, row_loss};
use crate::op;

pub use cases::cases;

op! {
    /// Mean cross-entropy of class logits.
    ///
    /// Matches `torch.nn.functional.cross_entropy`. The loss of a group of images is the mean over
    /// its rows whose label is not -1 or, as for detectron2's keypoints, their sum divided by a
    /// fixed number of rows per image of the group. The result is the mean over the groups that
    /// have images. Numerics: maximum subtracted, exponentials and sums in f64 (CUDA: f32), fixed
    /// order. Edge cases: the loss is 0 if all labels are -1.
    #[derive(Copy, Eq)]
    pub struct SoftmaxCrossEntropy = "softmax_cross_entropy" {
        /// Images per group; the loss is averaged over the rows of a group.
        pub ipg: usize [|ipg| *ipg > 0, "at least 1"],
        /// Divisor of the sum, in rows per image; `None`: the number of rows whose label is not -1.
        pub rows_per_image: Option<usize>,
    }
    in SoftmaxCrossEntropyInputs {
        /// A column per class, at least one.
        logits: real "[M, K+1]",
        /// Class (0 is background), or -1: ignored.
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

row_loss!(SoftmaxCrossEntropy, "softmax_cross_entropy");

impl SoftmaxCrossEntropy {
    /// Logits and class of a row.
    fn row<'a>(inputs: &[TensorRef<'a>], row: usize) -> (&'a [f32], usize) {
        let of = SoftmaxCrossEntropyInputs::of(inputs);
        let classes = of.logits.shape()[1];
        let label = of.labels.i32()[row] as usize;
        assert!(label < classes, "label {label} of {classes} classes in row {row}");
        (&of.logits.f32()[row * classes..][..classes], label)
    }
}

impl RowLoss for SoftmaxCrossEntropy {
    const LAUNCH: RowLaunch = RowLaunch::Warp;
    const FLOPS: [u64; 2] = [4, 4];
    const LOSS_FROM: i32 = 0;

    fn mean(&self) -> (usize, Option<usize>) {
        (self.ipg, self.rows_per_image)
    }

    fn parameters(&self, arg: StructArg, columns: i32) -> StructArg {
        arg.field(columns)
    }

    fn loss(&self, inputs: &[TensorRef<'_>], row: usize) -> f64 {
        let (logits, label) = Self::row(inputs, row);
        let (max, sum) = exponentials(logits);
        sum.ln() + max - f64::from(logits[label])
    }

    fn gradient(&self, inputs: &[TensorRef<'_>], row: usize, scale: f64, g: &mut [f32]) {
        let (logits, label) = Self::row(inputs, row);
        let (max, sum) = exponentials(logits);
        for (class, (g, &x)) in g.iter_mut().zip(logits).enumerate() {
            let truth = if class == label { 1.0 } else { 0.0 };
            *g = (scale * ((f64::from(x) - max).exp() / sum - truth)) as f32;
        }
    }
}
