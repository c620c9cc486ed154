//! Regression targets of sampled anchors or RoIs: deltas to the matched ground truth.
//!
//! Matches torchvision's `BoxCoder.encode` (and maskrcnn-benchmark's with `plus_one`).
//!
//! Tensors: `boxes` (`[M, 4]`), `image_idx` (`[M]`), `matched` (`[M]`, ground truth of the row's
//! image), `gt_boxes` (`[N, G, 4]`), `labels` (`[M]`) -> `targets` (`[M, 4]`, deltas times
//! `weights`), `matched_boxes` (`[M, 4]`); both overwritten, and 0 in rows with label <= 0.
//! Edges: a row that names no ground truth is 0 too.

mod cases;
mod cuda;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};

use crate::boxes::{as_boxes, as_boxes_mut, encode};
use crate::check::Dims;
use crate::cpu::CpuArgs;
use crate::{Cost, Op, OpError, Role, TensorDesc};

pub use cases::cases;

/// Encodes the foreground rows.
#[derive(Debug, Clone, PartialEq)]
pub struct EncodeBoxes {
    /// Factors of the four deltas.
    pub weights: [f32; 4],
    /// Boxes are inclusive.
    pub plus_one: bool,
}

op_inputs! {
    /// The inputs of [`EncodeBoxes`].
    pub struct EncodeBoxesInputs {
        /// `[M, 4]` f32.
        boxes,
        /// `[M]` i32.
        image_idx,
        /// `[M]` i32.
        matched,
        /// `[N, G, 4]` f32.
        gt_boxes,
        /// `[M]` i32.
        labels,
    }
}

const NAME: &str = "encode_boxes";

impl Op for EncodeBoxes {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let mut dims = Dims::new(NAME, inputs, EncodeBoxesInputs::LEN, updates)?;
        let inputs = EncodeBoxesInputs::of(inputs);
        dims.f32("boxes", inputs.boxes, "[M, 4]")?;
        dims.i32("image_idx", inputs.image_idx, "[M]")?;
        dims.i32("matched", inputs.matched, "[M]")?;
        dims.f32("gt_boxes", inputs.gt_boxes, "[N, G, 4]")?;
        dims.i32("labels", inputs.labels, "[M]")?;
        let rows = TensorDesc::new(Role::Box, &[dims.get("M"), 4]);
        Ok(vec![rows.clone(), rows])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 30 * EncodeBoxesInputs::of(inputs).image_idx.len() as u64)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let inputs = EncodeBoxesInputs::of(&args.inputs);
        let (boxes, gt_boxes) = (as_boxes(inputs.boxes.f32()), as_boxes(inputs.gt_boxes.f32()));
        let (image_idx, matched, labels) =
            (inputs.image_idx.i32(), inputs.matched.i32(), inputs.labels.i32());
        let (images, capacity) = (inputs.gt_boxes.shape()[0], inputs.gt_boxes.shape()[1]);
        let gt_of = |row: usize| {
            let image = usize::try_from(image_idx[row]).ok().filter(|&n| n < images)?;
            let gt = usize::try_from(matched[row]).ok().filter(|&g| g < capacity)?;
            (labels[row] > 0).then(|| gt_boxes[image * capacity + gt])
        };
        let [targets, matched_boxes] = &mut args.outputs[..] else {
            unreachable!("infer gives two outputs")
        };
        let (targets, matched_boxes) =
            (as_boxes_mut(targets.f32()), as_boxes_mut(matched_boxes.f32()));
        for (row, b) in boxes.iter().enumerate() {
            (targets[row], matched_boxes[row]) = match gt_of(row) {
                Some(gt) => (encode(b, &gt, &self.weights, self.plus_one), gt),
                None => ([0.0; 4], [0.0; 4]),
            };
        }
    }
}
