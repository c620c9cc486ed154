//! RoIs of the next stage of a cascade: decoded from the deltas of the stage before, and clipped.
//!
//! Matches detectron2's `CascadeROIHeads._create_proposals_from_boxes`, but for the RoIs without
//! extent that it drops in training: they keep their rows, and `match_rois` ignores them.
//!
//! Tensors: `rois` (`[M, 4]`), `deltas` (`[M, 4]`, of all classes), `image_idx` (`[M]`), `count`
//! (`[1]`), `network_sizes` (`[N, 2]`, height and width without padding) -> `rois` (`[M, 4]`,
//! overwritten; 0 in rows at or past the count and in rows of no image).

mod cases;
mod cuda;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};

use crate::boxes::{ImageSize, as_boxes, as_boxes_mut, at_most, clip, decode};
use crate::check::Dims;
use crate::cpu::CpuArgs;
use crate::{Cost, Op, OpError, Role, TensorDesc};

pub use cases::cases;

/// Decodes each RoI's deltas.
#[derive(Debug, Clone, PartialEq)]
pub struct RefineRois {
    /// Factors of the four deltas.
    pub weights: [f32; 4],
    /// Boxes are inclusive.
    pub plus_one: bool,
}

op_inputs! {
    /// The inputs of [`RefineRois`].
    pub struct RefineRoisInputs {
        /// `[M, 4]` f32.
        rois,
        /// `[M, 4]`.
        deltas,
        /// `[M]` i32.
        image_idx,
        /// `[1]` i32.
        count,
        /// `[N, 2]` i32.
        network_sizes,
    }
}

const NAME: &str = "refine_rois";

impl Op for RefineRois {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let mut dims = Dims::new(NAME, inputs, RefineRoisInputs::LEN, updates)?;
        let inputs = RefineRoisInputs::of(inputs);
        dims.f32("rois", inputs.rois, "[M, 4]")?;
        dims.f32("deltas", inputs.deltas, "[M, 4]")?;
        dims.i32("image_idx", inputs.image_idx, "[M]")?;
        dims.i32("count", inputs.count, "[1]")?;
        dims.i32("network_sizes", inputs.network_sizes, "[N, 2]")?;
        Ok(vec![TensorDesc::new(Role::Box, &[dims.get("M"), 4])])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 10 * outputs[0].len() as u64)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let inputs = RefineRoisInputs::of(&args.inputs);
        let (rois, deltas) = (as_boxes(inputs.rois.f32()), as_boxes(inputs.deltas.f32()));
        let (image_idx, sizes) = (inputs.image_idx.i32(), inputs.network_sizes.i32());
        let (count, images) =
            (at_most(inputs.count.i32()[0], rois.len()), inputs.network_sizes.shape()[0]);
        let refined = |row: usize| {
            let image =
                usize::try_from(image_idx[row]).ok().filter(|&n| row < count && n < images)?;
            let b = decode(&rois[row], &deltas[row], &self.weights, self.plus_one);
            Some(clip(&b, ImageSize::from_row(&sizes[2 * image..]), self.plus_one))
        };
        for (row, b) in as_boxes_mut(args.outputs[0].f32()).iter_mut().enumerate() {
            *b = refined(row).unwrap_or([0.0; 4]);
        }
    }
}
