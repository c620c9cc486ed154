//! Counts of right and wrong predictions in a training step, from which its accuracies follow.
//!
//! Matches detectron2: `_log_classification_stats` (classes), `mask_rcnn_loss` (masks, split at
//! logit 0 and target 0.5), `RPN.losses` (sampled anchors). Recall of anchors (logit above 0) and
//! of objects (a proposal of IoU 0.5 or more) as Tensorpack's `recall_th0.5`, `recall_iou0.5`.
//!
//! Tensors: `class_logits [M, K+1]`, `labels [M]` (class, 0 background, below 0 ignored),
//! `anchor_logits [A, 1]`, `anchor_labels [A]` (1 or more positive, 0 negative, below 0 ignored),
//! `proposals [N, P, 4]`, `counts [N]`, `gt_boxes [N, G, 4]`, `gt_counts [N]`, `num_images [1]`,
//! and where the model has masks `mask_logits [Mp, S, S]`, `mask_labels [Mp]` (above 0: counted),
//! `mask_targets [Mp, S, S]` -> `tally [15]` i32, overwritten, in the order of [`Count`].
//!
//! Edges: the lowest of classes with equal logits is predicted. A logit that is not a number is
//! never greatest nor above 0. Images from `num_images` on have no objects. Integers throughout.

mod cases;
mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use device::{Gpu, Launch, LaunchArgs};

use crate::check;
use crate::contract::Dims;
use crate::cpu::CpuArgs;
use crate::{Cost, Op, OpError, Role, TensorDesc};

pub use cases::cases;

/// Counts right and wrong predictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accuracies {
    /// Boxes are inclusive.
    pub plus_one: bool,
}

op_inputs! {
    /// The inputs of [`Accuracies`].
    pub struct AccuraciesInputs {
        /// `[M, K+1]`.
        class_logits,
        /// `[M]` i32.
        labels,
        /// `[A, 1]`.
        anchor_logits,
        /// `[A]` i32.
        anchor_labels,
        /// `[N, P, 4]` f32.
        proposals,
        /// Proposals of each image, `[N]` i32.
        counts,
        /// `[N, G, 4]` f32.
        gt_boxes,
        /// `[N]` i32.
        gt_counts,
        /// `[1]` i32.
        num_images,
    }
    optional {
        /// `[Mp, S, S]`.
        mask_logits,
        /// `[Mp]` i32.
        mask_labels,
        /// `[Mp, S, S]` f32.
        mask_targets,
    }
}

/// The counts of a tally, in its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// Images in use.
    Images,
    /// Foreground RoIs.
    Foreground,
    /// Background RoIs.
    Background,
    /// Foreground RoIs that are put in their class.
    ForegroundRight,
    /// Background RoIs that are put in the background.
    BackgroundRight,
    /// Foreground RoIs that are put in the background.
    Missed,
    /// Positive anchors.
    Positives,
    /// Negative anchors.
    Negatives,
    /// Positive anchors whose logit is above 0.
    PositivesFound,
    /// Objects.
    Objects,
    /// Objects that a proposal covers.
    ObjectsCovered,
    /// Pixels inside a mask.
    Inside,
    /// Pixels outside a mask.
    Outside,
    /// Pixels inside that are predicted outside.
    InsideWrong,
    /// Pixels outside that are predicted inside.
    OutsideWrong,
}

/// Counts of a tally.
pub const COUNTS: usize = 15;

/// IoU from which a proposal covers an object.
const COVERS: f32 = 0.5;

const NAME: &str = "accuracies";

/// The inputs of a list, whose length says if there are masks.
fn named<T>(list: &[T]) -> AccuraciesInputs<&T> {
    AccuraciesInputs::of(list, [list.len() > AccuraciesInputs::LEN; 3])
}

impl Op for Accuracies {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let masks = if inputs.len() > AccuraciesInputs::LEN { 3 } else { 0 };
        let mut dims = Dims::new(NAME, inputs, AccuraciesInputs::LEN + masks, updates)?;
        let of = named(inputs);
        check::floats_ranked(NAME, "class_logits", of.class_logits, "[M, K+1]")?;
        check::integers(NAME, "labels", of.labels, &of.class_logits.shape[..1])?;
        check::floats(NAME, "anchor_logits", of.anchor_logits, &[of.anchor_labels.len(), 1])?;
        dims.i32("anchor_labels", of.anchor_labels, "[A]")?;
        dims.f32("proposals", of.proposals, "[N, P, 4]")?;
        dims.i32("counts", of.counts, "[N]")?;
        dims.f32("gt_boxes", of.gt_boxes, "[N, G, 4]")?;
        dims.i32("gt_counts", of.gt_counts, "[N]")?;
        dims.i32("num_images", of.num_images, "[1]")?;
        if let (Some(logits), Some(labels), Some(targets)) =
            (of.mask_logits, of.mask_labels, of.mask_targets)
        {
            check::floats_ranked(NAME, "mask_logits", logits, "[Mp, S, S]")?;
            check::integers(NAME, "mask_labels", labels, &logits.shape[..1])?;
            check::floats(NAME, "mask_targets", targets, &logits.shape)?;
        }
        Ok(vec![TensorDesc::new(Role::Index, &[COUNTS])])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let of = named(inputs);
        let pairs = of.proposals.len() / 4 * of.gt_boxes.dim(1);
        Cost::streaming(inputs, outputs, 16 * pairs as u64)
    }

    fn cuda_workspace_bytes(
        &self,
        _gpu: &Gpu,
        _inputs: &[TensorDesc],
        _outputs: &[TensorDesc],
    ) -> usize {
        cuda::WORKSPACE_BYTES
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(*self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        cpu::accuracies(*self, args);
    }
}
