//! Counts of correct and wrong predictions in a training step, for its accuracies.
//!
//! Matches detectron2: `_log_classification_stats` (classes), `mask_rcnn_loss` (masks, thresholded
//! at logit 0 and target 0.5), `RPN.losses` (sampled anchors). The recall of anchors (logit above
//! 0) and of objects (covered by a proposal with an IoU of 0.5 or more) matches Tensorpack's
//! `recall_th0.5` and `recall_iou0.5`.
//!
//! Edge cases: of classes with equal logits the one with the lowest index is predicted. A NaN logit
//! is never the maximum nor above 0.

mod cases;

use device::{Access, Buffer, Launch, LaunchArgs, StructArg};
use rayon::prelude::*;

use crate::boxes::{as_boxes, at_most, gt_rows, iou};
use crate::contract::Kernel;
use crate::cpu::CpuArgs;
use crate::{Cost, TensorDesc, op};

pub use cases::cases;

op! {
    /// Counts correct and wrong predictions, in integers.
    #[derive(Copy, Eq)]
    pub struct Accuracies = "accuracies" {
        /// Box corners are inclusive: width = x2 - x1 + 1.
        pub plus_one: bool,
        /// The model has masks.
        pub masks: bool,
    }
    in AccuraciesInputs {
        /// Logits of classes.
        class_logits: real "[M, K+1]",
        /// Class; 0: background, below 0: ignored.
        labels: i32 "[M]",
        /// Logits of anchors.
        anchor_logits: real "[A, 1]",
        /// 1 or more: positive, 0: negative, below 0: ignored.
        anchor_labels: i32 "[A]",
        /// Boxes.
        proposals: f32 "[N, P, 4]",
        /// Number of proposals of each image.
        counts: i32 "[N]",
        /// Objects.
        gt_boxes: f32 "[N, G, 4]",
        /// Number of objects of each image.
        gt_counts: i32 "[N]",
        /// Number of images in use; the objects of later images are not counted.
        num_images: i32 "[1]",
    }
    optional {
        /// Logits of masks.
        mask_logits: real "[Mp, S, S]" if |op| op.masks,
        /// Above 0: counted.
        mask_labels: i32 "[Mp]" if |op| op.masks,
        /// Targets of masks.
        mask_targets: f32 "[Mp, S, S]" if |op| op.masks,
    }
    out {
        /// The counts, in the order of [`Count`].
        tally: Index "[15]",
    }
}

/// The counts of a tally, in the order of its elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// Number of images in use.
    Images,
    /// Foreground RoIs.
    Foreground,
    /// Background RoIs.
    Background,
    /// Foreground RoIs classified correctly.
    ForegroundRight,
    /// Background RoIs classified as background.
    BackgroundRight,
    /// Foreground RoIs classified as background.
    Missed,
    /// Positive anchors.
    Positives,
    /// Negative anchors.
    Negatives,
    /// Positive anchors whose logit is above 0.
    PositivesFound,
    /// Objects.
    Objects,
    /// Objects that a proposal covers with an IoU of 0.5 or more.
    ObjectsCovered,
    /// Pixels inside a mask.
    Inside,
    /// Pixels outside a mask.
    Outside,
    /// Pixels inside a mask that are predicted as outside.
    InsideWrong,
    /// Pixels outside a mask that are predicted as inside.
    OutsideWrong,
}

/// Number of counts in a tally.
pub const COUNTS: usize = 15;

/// Minimum IoU for a proposal to cover an object.
const COVERS: f32 = 0.5;

/// Blocks of the launch: about one per SM, which is enough for the few megabytes of a batch's
/// masks.
const BLOCKS: usize = 128;

/// Bytes of the counts of each block.
const WORKSPACE_BYTES: usize = BLOCKS * COUNTS * size_of::<i32>();

impl Accuracies {
    /// The inputs in `list`, by name.
    fn inputs<'a, T>(&self, list: &'a [T]) -> AccuraciesInputs<&'a T> {
        AccuraciesInputs::of(list, [self.masks; 3])
    }
}

impl Kernel for Accuracies {
    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let of = self.inputs(inputs);
        let pairs = of.proposals.len() / 4 * of.gt_boxes.dim(1);
        Cost::streaming(inputs, outputs, 16 * pairs as u64)
    }

    fn cuda_workspace_bytes(&self, _inputs: &[TensorDesc]) -> usize {
        WORKSPACE_BYTES
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let inputs = self.inputs(&args.inputs);
        let partials = |access| args.workspace.piece(0, WORKSPACE_BYTES, access);
        let masks = inputs.mask_logits.map_or([0, 0], |logits| [0, 1].map(|dim| logits.dim(dim)));
        let sizes = [
            inputs.class_logits.dim(0),
            inputs.class_logits.dim(1),
            inputs.anchor_labels.len(),
            inputs.proposals.dim(0),
            inputs.proposals.dim(1),
            inputs.gt_boxes.dim(1),
            masks[0],
            masks[1] * masks[1],
        ];
        let predictions = StructArg::new()
            .pointers(args.inputs.iter().map(Buffer::read), AccuraciesInputs::LEN + 3)
            .ints(sizes)
            .field(i32::from(self.plus_one))
            .field(COVERS)
            .arg();
        vec![
            Launch::new("accuracies_f16", [BLOCKS, 1, 1])
                .arg(predictions)
                .arg(partials(Access::Write)),
            Launch::new("accuracies_total", [1, 1, 1])
                .block(32)
                .arg(partials(Access::Read))
                .arg(args.outputs[0].write()),
        ]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let inputs = self.inputs(&args.inputs);
        let mut tally = [0; COUNTS];
        let mut add = |count: Count, holds: bool| tally[count as usize] += i32::from(holds);

        let classes = inputs.class_logits.shape()[1];
        for (row, &label) in inputs.labels.i32().iter().enumerate() {
            let Ok(class) = usize::try_from(label) else { continue };
            let x = &inputs.class_logits.f32()[row * classes..][..classes];
            let is_foreground = class > 0;
            add(Count::Foreground, is_foreground);
            add(Count::Background, !is_foreground);
            add(Count::ForegroundRight, is_foreground && is_predicted(x, class));
            add(Count::BackgroundRight, !is_foreground && is_predicted(x, 0));
            add(Count::Missed, is_foreground && is_predicted(x, 0));
        }
        for (&label, &logit) in inputs.anchor_labels.i32().iter().zip(inputs.anchor_logits.f32()) {
            add(Count::Positives, label > 0);
            add(Count::Negatives, label == 0);
            add(Count::PositivesFound, label > 0 && logit > 0.0);
        }
        let (proposals, counts) = (as_boxes(inputs.proposals.f32()), inputs.counts.i32());
        let (gt_boxes, gt_counts) = (as_boxes(inputs.gt_boxes.f32()), inputs.gt_counts.i32());
        for n in 0..at_most(inputs.num_images.i32()[0], counts.len()) {
            add(Count::Images, true);
            let own = gt_rows(proposals, counts, n);
            for gt in gt_rows(gt_boxes, gt_counts, n) {
                add(Count::Objects, true);
                let covers = |proposal| iou(gt, proposal, self.plus_one) >= COVERS;
                add(Count::ObjectsCovered, own.par_iter().any(covers));
            }
        }
        if let (Some(logits), Some(labels), Some(targets)) =
            (inputs.mask_logits, inputs.mask_labels, inputs.mask_targets)
        {
            let pixels = logits.shape()[1] * logits.shape()[2];
            for (row, _) in labels.i32().iter().enumerate().filter(|(_, label)| **label > 0) {
                for at in row * pixels..(row + 1) * pixels {
                    let (is_inside, predicted) = (targets.f32()[at] > 0.5, logits.f32()[at] > 0.0);
                    add(Count::Inside, is_inside);
                    add(Count::Outside, !is_inside);
                    add(Count::InsideWrong, is_inside && !predicted);
                    add(Count::OutsideWrong, !is_inside && predicted);
                }
            }
        }
        args.outputs[0].i32().copy_from_slice(&tally);
    }
}

/// True if `class` is the first class with the greatest logit.
fn is_predicted(logits: &[f32], class: usize) -> bool {
    let Some(&own) = logits.get(class) else { return false };
    let (before, from) = logits.split_at(class);
    before.iter().all(|&x| own > x) && from.iter().all(|&x| own >= x)
}
