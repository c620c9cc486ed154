//! Candidates that the RoI heads may be trained on: labelled proposals and ground truth.
//!
//! Matches torchvision's `add_gt_proposals` and `assign_targets_to_proposals` (no low-quality
//! matches): class of the best ground truth from `fg_iou`, background below `bg_iou`.
//!
//! Tensors: `proposals` (`[N, P, 4]`), `proposal_anchor_idx` (`[N, P]`), `counts` (`[N]`),
//! `gt_boxes` (`[N, G, 4]`), `gt_classes` (`[N, G]`, 1..=K), `gt_counts` (`[N]`), `num_images`
//! (`[1]`) -> `candidates` (`[N, P+G, 4]`: the `counts[n]` proposals, the ground truths, zeros),
//! `labels` (`[N, P+G]`: class, 0 background, -1 between the thresholds or padding), `matched_idx`
//! (`[N, P+G]`: the ground truth of a foreground, else 0), `keys` (`[N, P+G]`: a proposal's anchor,
//! -2-g for ground truth g, -1 padding), `counts` (`[N]`); all overwritten.
//! Edges: images from `num_images` on have no candidates; without ground truth all is background.

mod cases;
mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};

use crate::check::Dims;
use crate::cpu::CpuArgs;
use crate::{Cost, Op, OpError, Role, TensorDesc};

pub use cases::cases;

/// Joins proposals and ground truth, and matches them with the ground truth.
#[derive(Debug, Clone, PartialEq)]
pub struct RoiCandidates {
    /// IoU from which a candidate is foreground.
    pub fg_iou: f32,
    /// IoU below which a candidate is background.
    pub bg_iou: f32,
    /// Boxes are inclusive.
    pub plus_one: bool,
}

op_inputs! {
    /// The inputs of [`RoiCandidates`].
    pub struct RoiCandidatesInputs {
        /// `[N, P, 4]` f32.
        proposals,
        /// `[N, P]` i32.
        proposal_anchor_idx,
        /// Proposals of each image, `[N]` i32.
        counts,
        /// `[N, G, 4]` f32.
        gt_boxes,
        /// 1..=K, `[N, G]` i32.
        gt_classes,
        /// `[N]` i32.
        gt_counts,
        /// `[1]` i32.
        num_images,
    }
}

const NAME: &str = "roi_candidates";

impl Op for RoiCandidates {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let mut dims = Dims::new(NAME, inputs, RoiCandidatesInputs::LEN, updates)?;
        let inputs = RoiCandidatesInputs::of(inputs);
        dims.f32("proposals", inputs.proposals, "[N, P, 4]")?;
        dims.i32("proposal_anchor_idx", inputs.proposal_anchor_idx, "[N, P]")?;
        dims.i32("counts", inputs.counts, "[N]")?;
        dims.f32("gt_boxes", inputs.gt_boxes, "[N, G, 4]")?;
        dims.i32("gt_classes", inputs.gt_classes, "[N, G]")?;
        dims.i32("gt_counts", inputs.gt_counts, "[N]")?;
        dims.i32("num_images", inputs.num_images, "[1]")?;
        let (n, rows) = (dims.get("N"), dims.get("P") + dims.get("G"));
        let index = TensorDesc::new(Role::Index, &[n, rows]);
        Ok(vec![
            TensorDesc::new(Role::Box, &[n, rows, 4]),
            index.clone(),
            index.clone(),
            index,
            TensorDesc::new(Role::Index, &[n]),
        ])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let pairs = outputs[1].len() * RoiCandidatesInputs::of(inputs).gt_boxes.dim(1);
        Cost::streaming(inputs, outputs, 16 * pairs as u64)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        cpu::roi_candidates(self, args);
    }
}
