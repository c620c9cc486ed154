//! Training candidates of the RoI heads: labelled proposals and ground truth.
//!
//! Matches torchvision's `add_gt_proposals` and `assign_targets_to_proposals` (no low-quality
//! matches): the class of the best ground truth if their IoU is at least `fg_iou`, background if it
//! is below `bg_iou`.
//!
//! Edge cases: images past `num_images` have no candidates; without ground truth all candidates are
//! background.

mod cases;

use device::{BLOCK, Launch, LaunchArgs};
use rayon::prelude::*;

use crate::boxes::{Thresholds, as_boxes, as_boxes_mut, at_most, gt_rows, match_boxes};
use crate::contract::Kernel;
use crate::cpu::{CpuArgs, exactly};
use crate::{Cost, TensorDesc, op};

pub use cases::cases;

op! {
    /// Concatenates proposals and ground truth, and matches the result with the ground truth.
    pub struct RoiCandidates = "roi_candidates" {
        /// Minimum IoU of a foreground candidate.
        pub fg_iou: f32,
        /// IoU below which a candidate is background.
        pub bg_iou: f32,
        /// Box corners are inclusive: width = x2 - x1 + 1.
        pub plus_one: bool,
    }
    in RoiCandidatesInputs {
        /// Proposed boxes.
        proposals: f32 "[N, P, 4]",
        /// Anchor of each proposal.
        proposal_anchor_idx: i32 "[N, P]",
        /// Number of proposals of each image.
        counts: i32 "[N]",
        /// Ground truth.
        gt_boxes: f32 "[N, G, 4]",
        /// Classes of the ground truths, 1 to K.
        gt_classes: i32 "[N, G]",
        /// Number of ground truths of each image.
        gt_counts: i32 "[N]",
        /// Number of images in use.
        num_images: i32 "[1]",
    }
    out {
        /// Proposals, then ground truths, then zeros.
        candidates: Box "[N, P+G, 4]",
        /// Class; 0: background; -1: IoU between the thresholds, or padding.
        labels: Index "[N, P+G]",
        /// Ground truth of a foreground candidate, else 0.
        matched_idx: Index "[N, P+G]",
        /// Anchor of a proposal; -2-g for ground truth g; -1 in padding rows.
        keys: Index "[N, P+G]",
        /// Number of candidates of each image.
        candidate_counts: Index "[N]",
    }
}

impl Kernel for RoiCandidates {
    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let pairs = outputs[1].len() * RoiCandidatesInputs::of(inputs).gt_boxes.dim(1);
        Cost::streaming(inputs, outputs, 16 * pairs as u64)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let inputs = RoiCandidatesInputs::of(&args.inputs);
        let (proposals, gts) = (*inputs.proposals, *inputs.gt_boxes);
        let rows = proposals.dim(1) + gts.dim(1);
        // Without rows one block still writes the count.
        let blocks = rows.div_ceil(BLOCK as usize).max(1);
        let mut launch = Launch::new("roi_candidates_f32", [blocks, proposals.dim(0), 1]);
        launch = launch.tensors(args);
        vec![
            launch
                .int(proposals.dim(1))
                .int(gts.dim(1))
                .arg(self.fg_iou)
                .arg(self.bg_iou)
                .arg(self.plus_one),
        ]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let inputs = RoiCandidatesInputs::of(&args.inputs);
        let (proposals, anchor_idx) =
            (as_boxes(inputs.proposals.f32()), inputs.proposal_anchor_idx.i32());
        let (counts, gt_counts) = (inputs.counts.i32(), inputs.gt_counts.i32());
        let (gt_boxes, gt_classes) = (as_boxes(inputs.gt_boxes.f32()), inputs.gt_classes.i32());
        let num_images = at_most(inputs.num_images.i32()[0], counts.len());
        let thresholds = Thresholds { fg_iou: self.fg_iou, bg_iou: self.bg_iou };

        let [candidates, labels, matched, keys, out_counts] = exactly(&mut args.outputs);
        let rows = labels.shape()[1].max(1);
        let (candidates, labels) = (as_boxes_mut(candidates.f32()), labels.i32());
        let (matched, keys, out_counts) = (matched.i32(), keys.i32(), out_counts.i32());
        candidates.fill([0.0; 4]);
        labels.fill(-1);
        matched.fill(0);
        keys.fill(-1);
        out_counts.fill(0);
        candidates
            .par_chunks_mut(rows)
            .zip(labels.par_chunks_mut(rows))
            .zip(matched.par_chunks_mut(rows))
            .zip(keys.par_chunks_mut(rows))
            .zip(out_counts.par_iter_mut())
            .take(num_images)
            .enumerate()
            .for_each(|(n, ((((boxes, labels), matched), keys), count))| {
                let own = gt_rows(proposals, counts, n);
                let (gts, classes) =
                    (gt_rows(gt_boxes, gt_counts, n), gt_rows(gt_classes, gt_counts, n));
                let len = own.len() + gts.len();
                boxes[..own.len()].copy_from_slice(own);
                boxes[own.len()..len].copy_from_slice(gts);
                keys[..own.len()].copy_from_slice(gt_rows(anchor_idx, counts, n));
                for (g, key) in keys[own.len()..len].iter_mut().enumerate() {
                    *key = -2 - g as i32;
                }
                *count = len as i32;
                let matches = match_boxes(&boxes[..len], gts, thresholds, self.plus_one);
                for ((label, matched), m) in labels.iter_mut().zip(matched).zip(matches) {
                    (*label, *matched) = match m {
                        crate::boxes::BELOW => (0, 0),
                        crate::boxes::BETWEEN => (-1, 0),
                        gt => (classes[gt as usize], gt),
                    };
                }
            });
    }
}
