//! Labels of the RoIs of a later cascade stage: the RoIs are matched with the ground truth again,
//! at the stage's IoU threshold and without sampling.
//!
//! Matches detectron2's `CascadeROIHeads._match_and_label_boxes`: the class of the best ground
//! truth if their IoU is at least `fg_iou`, else background. Zero-area RoIs are ignored here;
//! detectron2 removes them.
//!
//! Edge cases: rows at or past the count or without an image are ignored; without ground truth all
//! other RoIs are background.

mod cases;

use device::{Launch, LaunchArgs};
use rayon::prelude::*;

use crate::boxes::{BELOW, Thresholds, as_boxes, at_most, gt_rows, height, match_boxes, width};
use crate::contract::Kernel;
use crate::cpu::{CpuArgs, exactly};
use crate::{Cost, TensorDesc, op};

pub use cases::cases;

op! {
    /// Matches RoIs with the ground truth of their images.
    pub struct MatchRois = "match_rois" {
        /// Minimum IoU of a foreground RoI.
        pub fg_iou: f32,
        /// Box corners are inclusive: width = x2 - x1 + 1.
        pub plus_one: bool,
    }
    in MatchRoisInputs {
        /// Boxes.
        rois: f32 "[M, 4]",
        /// Image of the row.
        image_idx: i32 "[M]",
        /// Number of rows in use.
        count: i32 "[1]",
        /// Ground truth.
        gt_boxes: f32 "[N, G, 4]",
        /// Classes of the ground truths, 1 to K.
        gt_classes: i32 "[N, G]",
        /// Number of ground truths of each image.
        gt_counts: i32 "[N]",
    }
    out {
        /// Class, 0 background, -1 ignored.
        labels: Index "[M]",
        /// Ground truth of a foreground RoI, else 0.
        matched: Index "[M]",
    }
}

impl Kernel for MatchRois {
    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let pairs = outputs[0].len() * MatchRoisInputs::of(inputs).gt_boxes.dim(1);
        Cost::streaming(inputs, outputs, 16 * pairs as u64)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let inputs = MatchRoisInputs::of(&args.inputs);
        let (rows, gts) = (inputs.image_idx.len(), *inputs.gt_boxes);
        let launch = Launch::over("match_rois_f32", rows).tensors(args);
        vec![launch.arg(self.fg_iou).arg(self.plus_one).int(rows).int(gts.dim(0)).int(gts.dim(1))]
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
        let [labels, matched] = exactly(&mut args.outputs);
        let rows = labels.i32().par_iter_mut().zip(matched.i32()).enumerate();
        rows.for_each(|(row, (label, gt))| (*label, *gt) = of_row(row).unwrap_or((-1, 0)));
    }
}
