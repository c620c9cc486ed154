//! Candidates that the RoI heads may be trained on: labelled proposals and ground truth.
//!
//! Matches torchvision's `add_gt_proposals` and `assign_targets_to_proposals` (no low-quality
//! matches): class of the best ground truth from `fg_iou`, background below `bg_iou`.
//!
//! Edges: images from `num_images` on have no candidates; without ground truth all is background.

mod cases;
mod cpu;
#[cfg(test)]
mod tests;

use device::{BLOCK, Launch, LaunchArgs};

use crate::contract::Kernel;
use crate::cpu::CpuArgs;
use crate::{Cost, TensorDesc, op};

pub use cases::cases;

op! {
    /// Joins proposals and ground truth, and matches them with the ground truth.
    pub struct RoiCandidates = "roi_candidates" {
        /// IoU from which a candidate is foreground.
        pub fg_iou: f32,
        /// IoU below which a candidate is background.
        pub bg_iou: f32,
        /// Boxes are inclusive.
        pub plus_one: bool,
    }
    in RoiCandidatesInputs {
        /// Boxes of each image.
        proposals: f32 "[N, P, 4]",
        /// Anchor of each proposal.
        proposal_anchor_idx: i32 "[N, P]",
        /// Proposals of each image.
        counts: i32 "[N]",
        /// Ground truth.
        gt_boxes: f32 "[N, G, 4]",
        /// Its classes, 1 to K.
        gt_classes: i32 "[N, G]",
        /// Ground truths of each image.
        gt_counts: i32 "[N]",
        /// Images in use.
        num_images: i32 "[1]",
    }
    out {
        /// Proposals, then ground truths, then zeros.
        candidates: Box "[N, P+G, 4]",
        /// Class, 0 background, -1 between the thresholds or padding.
        labels: Index "[N, P+G]",
        /// Ground truth of a foreground, else 0.
        matched_idx: Index "[N, P+G]",
        /// A proposal's anchor, -2-g for ground truth g, -1 padding.
        keys: Index "[N, P+G]",
        /// Candidates of each image.
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
        cpu::roi_candidates(self, args);
    }
}
