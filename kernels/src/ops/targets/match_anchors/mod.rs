//! Labels of the anchors for the RPN losses, and the ground truth that each foreground belongs to.
//!
//! Matches torchvision's `Matcher` (`assign_targets_to_anchors`): foreground from `fg_iou`,
//! background below `bg_iou`; with `low_quality` every anchor that ties the best IoU of some
//! ground truth is foreground too, with its own best ground truth. As there, a ground truth that
//! no anchor overlaps ties all anchors at IoU 0. With `straddle_filter` (maskrcnn-benchmark)
//! anchors that cross the image's border are ignored, but take part in the matching.
//!
//! Tensors: `anchors` (`[A_total, 4]`), `gt_boxes` (`[N, G, 4]`), `gt_counts` (`[N]`),
//! `network_sizes` (`[N, 2]`), `num_images` (`[1]`) -> `labels` (`[N, A_total]`, i32: 1
//! foreground, 0 background, -1 ignored), `matched_idx` (`[N, A_total]`, i32: the ground truth of
//! an anchor that has one, also where the filter ignores it; else 0); both overwritten.
//! Edges: images from `num_images` on are all -1; without ground truth all is background.
//! Cost: two passes of A_total x G overlaps, tile by tile; the matrix is never held. Bound by
//! compute. Deterministic: only maxima are taken across tiles.

mod cases;
mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use device::{Gpu, Launch, LaunchArgs};

use crate::check::Dims;
use crate::cpu::CpuArgs;
use crate::{Cost, Op, OpError, Role, TensorDesc};

pub use cases::cases;

/// Labels anchors by their IoU with the ground truth.
#[derive(Debug, Clone, PartialEq)]
pub struct MatchAnchors {
    /// IoU from which an anchor is foreground.
    pub fg_iou: f32,
    /// IoU below which an anchor is background.
    pub bg_iou: f32,
    /// Every ground truth keeps its best anchors.
    pub low_quality: bool,
    /// Boxes are inclusive.
    pub plus_one: bool,
    /// Ignore anchors that cross the border of the (unpadded) image.
    pub straddle_filter: bool,
}

op_inputs! {
    /// The inputs of [`MatchAnchors`].
    pub struct MatchAnchorsInputs {
        /// `[A_total, 4]` f32.
        anchors,
        /// `[N, G, 4]` f32.
        gt_boxes,
        /// `[N]` i32.
        gt_counts,
        /// `[N, 2]` i32.
        network_sizes,
        /// `[1]` i32.
        num_images,
    }
}

const NAME: &str = "match_anchors";

impl Op for MatchAnchors {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let mut dims = Dims::new(NAME, inputs, MatchAnchorsInputs::LEN, updates)?;
        let inputs = MatchAnchorsInputs::of(inputs);
        dims.f32("anchors", inputs.anchors, "[A_total, 4]")?;
        dims.f32("gt_boxes", inputs.gt_boxes, "[N, G, 4]")?;
        dims.i32("gt_counts", inputs.gt_counts, "[N]")?;
        dims.i32("network_sizes", inputs.network_sizes, "[N, 2]")?;
        dims.i32("num_images", inputs.num_images, "[1]")?;
        let labels = TensorDesc::new(Role::Index, &[dims.get("N"), dims.get("A_total")]);
        Ok(vec![labels.clone(), labels])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        // 14 operations an overlap, 2 comparisons, twice.
        let pairs = outputs[0].len() * MatchAnchorsInputs::of(inputs).gt_boxes.dim(1);
        Cost::streaming(inputs, outputs, 32 * pairs as u64)
    }

    /// The best IoU of every anchor, between the two passes.
    fn cpu_workspace_len(&self, _inputs: &[TensorDesc], outputs: &[TensorDesc]) -> usize {
        outputs[0].len()
    }

    fn cuda_workspace_bytes(
        &self,
        _gpu: &Gpu,
        inputs: &[TensorDesc],
        _outputs: &[TensorDesc],
    ) -> usize {
        cuda::workspace_bytes(
            MatchAnchorsInputs::of(inputs).gt_boxes.dim(0),
            MatchAnchorsInputs::of(inputs).gt_boxes.dim(1),
        )
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        cpu::match_anchors(self, args);
    }
}
