//! Binary cross-entropy of mask logits: `loss_mask`.

mod cases;

use device::StructArg;

use crate::cpu::TensorRef;
use crate::losses::row_loss::{RowLaunch, RowLoss};
use crate::losses::{bce_with_logits, row_loss};
use crate::op;

pub use cases::cases;

op! {
    /// Mean binary cross-entropy of the mask logits of positive rows.
    ///
    /// Matches the mask losses of torchvision and maskrcnn-benchmark; the logits hold only the
    /// channel of each row's class (`class_masks`). The loss of a group of images is the mean over
    /// the S x S pixels of its positive rows; the result is the mean over the groups that have
    /// images. Targets may be soft. Numerics: softplus form, summed in f64 (CUDA: f32) in a fixed
    /// order. Edge cases: without positive rows the loss is 0.
    #[derive(Copy, Eq)]
    pub struct MaskBceLoss = "mask_bce_loss" {
        /// Images per group; the loss is averaged over the rows of a group.
        pub ipg: usize [|ipg| *ipg > 0, "at least 1"],
    }
    in MaskBceLossInputs {
        /// Logits of the row's class.
        mask_logits: real "[M, H, W]",
        /// Class; above 0: positive.
        labels: i32 "[M]",
        /// Mask of the row, 0 to 1.
        targets: f32 "[M, H, W]",
        /// Image of each row.
        image_idx: i32 "[M]",
        /// Number of rows in use.
        count: i32 "[1]",
        /// Number of images in use.
        num_images: i32 "[1]",
    }
    out {
        /// Mean over the groups that have images.
        loss: Loss "[1]",
    }
}

row_loss!(MaskBceLoss, "mask_bce_loss");

impl MaskBceLoss {
    /// Loss and derivative of the pixels of a row.
    fn row<'a>(inputs: &[TensorRef<'a>], row: usize) -> impl Iterator<Item = (f32, f32)> + 'a {
        let of = MaskBceLossInputs::of(inputs);
        let pixels = of.targets.desc.shape[1..].iter().product::<usize>();
        let of_row = |of: &TensorRef<'a>| &of.f32()[row * pixels..][..pixels];
        let (logits, targets) = (of_row(of.mask_logits), of_row(of.targets));
        logits.iter().zip(targets).map(|(&x, &target)| bce_with_logits(x, target))
    }
}

impl RowLoss for MaskBceLoss {
    /// About four blocks per SM: enough loads in flight to saturate memory. Each block also counts
    /// the rows of each group of images, so more blocks would add noticeable memory traffic.
    const LAUNCH: RowLaunch = RowLaunch::Block(512);
    const FLOPS: [u64; 2] = [6, 5];
    const COUNTED_FROM: i32 = 1;
    const LOSS_FROM: i32 = 1;
    const ROWS_A_TASK: usize = 1;

    fn mean(&self) -> (usize, Option<usize>) {
        (self.ipg, None)
    }

    fn parameters(&self, arg: StructArg, columns: i32) -> StructArg {
        arg.field(columns)
    }

    fn weight(&self, weight: f64, columns: usize) -> f64 {
        weight / columns as f64
    }

    fn loss(&self, inputs: &[TensorRef<'_>], row: usize) -> f64 {
        Self::row(inputs, row).map(|(loss, _)| f64::from(loss)).sum()
    }

    fn gradient(&self, inputs: &[TensorRef<'_>], row: usize, scale: f64, g: &mut [f32]) {
        let scale = scale as f32;
        for (g, (_, slope)) in g.iter_mut().zip(Self::row(inputs, row)) {
            *g = scale * slope;
        }
    }
}
