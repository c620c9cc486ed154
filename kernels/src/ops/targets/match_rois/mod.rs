//! Labels of the RoIs of a further stage of a cascade: matched with the ground truth again, at the
//! IoU of the stage, without sampling.
//!
//! Matches detectron2's `CascadeROIHeads._match_and_label_boxes`: class of the best ground truth
//! from `fg_iou`, else background. RoIs without extent, which it drops, are ignored.
//!
//! Tensors: `rois` (`[M, 4]`), `image_idx` (`[M]`), `count` (`[1]`), `gt_boxes` (`[N, G, 4]`),
//! `gt_classes` (`[N, G]`, 1..=K), `gt_counts` (`[N]`) -> `labels` (`[M]`: class, 0 background, -1
//! ignored), `matched` (`[M]`: the ground truth of a foreground, else 0); both overwritten.
//! Edges: rows at or past the count and rows of no image are ignored; without ground truth all is
//! background.

mod cases;
mod cuda;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};
use rayon::prelude::*;

use crate::boxes::{BELOW, Thresholds, as_boxes, at_most, gt_rows, height, match_boxes, width};
use crate::check::Dims;
use crate::cpu::CpuArgs;
use crate::{Cost, Op, OpError, Role, TensorDesc};

pub use cases::cases;

/// Matches RoIs with the ground truth of their images.
#[derive(Debug, Clone, PartialEq)]
pub struct MatchRois {
    /// IoU from which an RoI is foreground.
    pub fg_iou: f32,
    /// Boxes are inclusive.
    pub plus_one: bool,
}

op_inputs! {
    /// The inputs of [`MatchRois`].
    pub struct MatchRoisInputs {
        /// `[M, 4]` f32.
        rois,
        /// `[M]` i32.
        image_idx,
        /// `[1]` i32.
        count,
        /// `[N, G, 4]` f32.
        gt_boxes,
        /// 1..=K, `[N, G]` i32.
        gt_classes,
        /// `[N]` i32.
        gt_counts,
    }
}

const NAME: &str = "match_rois";

impl Op for MatchRois {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let mut dims = Dims::new(NAME, inputs, MatchRoisInputs::LEN, updates)?;
        let inputs = MatchRoisInputs::of(inputs);
        dims.f32("rois", inputs.rois, "[M, 4]")?;
        dims.i32("image_idx", inputs.image_idx, "[M]")?;
        dims.i32("count", inputs.count, "[1]")?;
        dims.f32("gt_boxes", inputs.gt_boxes, "[N, G, 4]")?;
        dims.i32("gt_classes", inputs.gt_classes, "[N, G]")?;
        dims.i32("gt_counts", inputs.gt_counts, "[N]")?;
        let rows = TensorDesc::new(Role::Index, &[dims.get("M")]);
        Ok(vec![rows.clone(), rows])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let pairs = outputs[0].len() * MatchRoisInputs::of(inputs).gt_boxes.dim(1);
        Cost::streaming(inputs, outputs, 16 * pairs as u64)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let inputs = MatchRoisInputs::of(&args.inputs);
        let (rois, image_idx) = (as_boxes(inputs.rois.f32()), inputs.image_idx.i32());
        let (gt_boxes, gt_classes) = (as_boxes(inputs.gt_boxes.f32()), inputs.gt_classes.i32());
        let gt_counts = inputs.gt_counts.i32();
        let count = at_most(inputs.count.i32()[0], rois.len());
        let (iou, plus_one) = (self.fg_iou, self.plus_one);
        let of_row = |row: usize| {
            let image = usize::try_from(image_idx[row]).ok();
            let image = image.filter(|&n| row < count && n < gt_counts.len())?;
            let b = rois[row];
            if !(width(&b, plus_one) > 0.0 && height(&b, plus_one) > 0.0) {
                return None;
            }
            let gts = gt_rows(gt_boxes, gt_counts, image);
            let thresholds = Thresholds { fg_iou: iou, bg_iou: iou };
            Some(match match_boxes(&[b], gts, thresholds, plus_one)[0] {
                BELOW => (0, 0),
                gt => (gt_rows(gt_classes, gt_counts, image)[gt as usize], gt),
            })
        };
        let [labels, matched] = &mut args.outputs[..] else {
            unreachable!("infer gives two outputs")
        };
        let rows = labels.i32().par_iter_mut().zip(matched.i32()).enumerate();
        rows.for_each(|(row, (label, gt))| (*label, *gt) = of_row(row).unwrap_or((-1, 0)));
    }
}
