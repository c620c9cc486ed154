//! The proposals that survive non-maximum suppression, the best of each image.
//!
//! Matches torchvision's `filter_proposals` from its NMS on (scope `Image`). All orders are total:
//! (score descending, row of the input ascending). Scope `Batch` is the training cut of
//! maskrcnn-benchmark's `select_over_all_levels`; of equal scores the lower image's row stays.
//!
//! Tensors: `boxes` (`[N, M, 4]`), `scores` (`[N, M]`, negative = does not count), `levels`
//! (`[M]`, i32), `idx` (`[N, M]`, i32, anchor of each row) -> `proposals` (`[N, P, 4]`),
//! `proposal_scores` (`[N, P]`), `proposal_anchor_idx` (`[N, P]`, i32), `counts` (`[N]`, i32); all
//! overwritten, rows from `counts[n]` on hold 0, 0 and -1.
//! P = `post_top_n` in scope `Image`, no more than M in scope `Batch`. In scope `Level` P = M, the
//! most that can survive.
//! Cost: at most M^2 / 2 overlaps a level; deterministic.

mod cases;
mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use device::{Gpu, Launch, LaunchArgs};

use crate::check;
use crate::check::Dims;
use crate::cpu::CpuArgs;
use crate::{Cost, Op, OpError, Role, TensorDesc};

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

/// NMS within each level of each image, then a cut.
#[derive(Debug, Clone, PartialEq)]
pub struct NmsProposals {
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

op_inputs! {
    /// The inputs of [`NmsProposals`].
    pub struct NmsProposalsInputs {
        /// `[N, M, 4]` f32.
        boxes,
        /// `[N, M]` f32.
        scores,
        /// `[M]` i32.
        levels,
        /// `[N, M]` i32.
        idx,
    }
}

const NAME: &str = "nms_proposals";

impl NmsProposals {
    /// Survivors of a level of an image that are looked for: more cannot be among the kept.
    fn most_of_level(&self) -> usize {
        self.level_top_n.map_or(self.post_top_n, |most| most.min(self.post_top_n))
    }
}

impl Op for NmsProposals {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let mut dims = Dims::new(NAME, inputs, NmsProposalsInputs::LEN, updates)?;
        let inputs = NmsProposalsInputs::of(inputs);
        dims.f32("boxes", inputs.boxes, "[N, M, 4]")?;
        dims.f32("scores", inputs.scores, "[N, M]")?;
        dims.i32("levels", inputs.levels, "[M]")?;
        dims.i32("idx", inputs.idx, "[N, M]")?;
        let n = dims.get("N");
        let p = match self.scope {
            ProposalScope::Level => dims.get("M"),
            ProposalScope::Image => self.post_top_n,
            ProposalScope::Batch { images } => {
                let divides = n.checked_rem(images) == Some(0);
                let expected = format!("a divisor of {n}");
                check::parameter(NAME, "images of a group", divides, &expected, images)?;
                self.post_top_n.min(dims.get("M"))
            }
        };
        Ok(vec![
            TensorDesc::new(Role::Box, &[n, p, 4]),
            TensorDesc::new(Role::Score, &[n, p]),
            TensorDesc::new(Role::Index, &[n, p]),
            TensorDesc::new(Role::Index, &[n]),
        ])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        // 14 operations an overlap, if a level holds a fifth of the rows.
        let rows = NmsProposalsInputs::of(inputs).boxes.dim(1) as u64;
        let pairs = NmsProposalsInputs::of(inputs).boxes.dim(0) as u64 * rows * rows / 10;
        Cost::streaming(inputs, outputs, 14 * pairs)
    }

    fn cuda_workspace_bytes(
        &self,
        _gpu: &Gpu,
        inputs: &[TensorDesc],
        _outputs: &[TensorDesc],
    ) -> usize {
        cuda::workspace_bytes(NmsProposalsInputs::of(inputs).boxes)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        cpu::nms_proposals(self, args);
    }
}
