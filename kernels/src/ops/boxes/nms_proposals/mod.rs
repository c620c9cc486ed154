//! The proposals that survive non-maximum suppression, the best of each image.
//!
//! Matches torchvision's `filter_proposals` from its NMS on (scope `Image`). All orders are total:
//! (score descending, row of the input ascending). Scope `Batch` is the training cut of
//! maskrcnn-benchmark's `select_over_all_levels`; of equal scores the lower image's row stays.
//!
//! Cost: at most M^2 / 2 overlaps a level; deterministic.

mod cases;
mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};

use crate::contract::{Dims, Kernel};
use crate::cpu::CpuArgs;
use crate::{Cost, OpError, TensorDesc, check, op};

pub use cases::cases;

/// The lists that `post_top_n` counts over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProposalScope {
    /// Over an image: its best survivors of all levels, by (score, row).
    Image,
    /// Over a level of an image: its best survivors, levels one after the other.
    Level,
    /// Over groups of images, one after the other: their best survivors, in each image levels one
    /// after the other.
    Batch {
        /// Images of a group; divides N.
        images: usize,
    },
}

op! {
    /// NMS within each level of each image, then a cut. P is `post_top_n` in scope `Image`, no more
    /// than M in scope `Batch`, and M, the most that can survive, in scope `Level`.
    pub struct NmsProposals = "nms_proposals" {
        /// A proposal falls if its IoU with a better one is over this.
        pub threshold: f32,
        /// Proposals kept over the scope.
        pub post_top_n: usize,
        /// Proposals of a level of an image that the scope chooses from at most; `None`: all.
        pub level_top_n: Option<usize>,
        /// Boxes are inclusive.
        pub plus_one: bool,
        /// The lists that `post_top_n` counts over.
        pub scope: ProposalScope,
    }
    in NmsProposalsInputs {
        /// Decoded proposals.
        boxes: f32 "[N, M, 4]",
        /// Their scores; negative: does not count.
        scores: f32 "[N, M]",
        /// Level of each row.
        levels: i32 "[M]",
        /// Anchor of each row.
        idx: i32 "[N, M]",
    }
    out {
        /// Survivors, best first; 0 from the count on.
        proposals: Box "[N, P, 4]",
        /// Their scores, or 0.
        proposal_scores: Score "[N, P]",
        /// Their anchors, or -1.
        proposal_anchor_idx: Index "[N, P]",
        /// Survivors of each image.
        counts: Index "[N]",
    }
}

impl NmsProposals {
    /// Survivors of a level of an image that are looked for: more cannot be among the kept.
    fn most_of_level(&self) -> usize {
        self.level_top_n.map_or(self.post_top_n, |most| most.min(self.post_top_n))
    }
}

impl Kernel for NmsProposals {
    fn check(&self, _inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        let rows = dims.get("M");
        let capacity = match self.scope {
            ProposalScope::Level => rows,
            ProposalScope::Image => self.post_top_n,
            ProposalScope::Batch { images } => {
                let n = dims.get("N");
                let divides = n.checked_rem(images) == Some(0);
                let expected = format!("a divisor of {n}");
                check::parameter(dims.op(), "images of a group", divides, &expected, images)?;
                self.post_top_n.min(rows)
            }
        };
        dims.bind("P", capacity);
        Ok(())
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        // 14 operations an overlap, if a level holds a fifth of the rows.
        let rows = NmsProposalsInputs::of(inputs).boxes.dim(1) as u64;
        let pairs = NmsProposalsInputs::of(inputs).boxes.dim(0) as u64 * rows * rows / 10;
        Cost::streaming(inputs, outputs, 14 * pairs)
    }

    fn cuda_workspace_bytes(&self, inputs: &[TensorDesc]) -> usize {
        cuda::workspace_bytes(NmsProposalsInputs::of(inputs).boxes)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        cpu::nms_proposals(self, args);
    }
}
