//! The feature level that each RoI is pooled from.
//!
//! Matches torchvision's `LevelMapper`, or detectron2's `assign_boxes_to_levels`; see
//! [`crate::boxes::roi_level`] for the formulas and for what maskrcnn-benchmark does otherwise.
//!
//! Tensors: `rois` (`[M, 4]`), `image_idx` (`[M]`, -1 = padding) -> `levels` (`[M]`, i32,
//! overwritten): the level less `min_level`; 0 in padding rows.
//! Edges: a RoI without area goes to the finest level.

mod cases;
mod cuda;
#[cfg(test)]
mod tests;

use choices::LevelEps;
use device::{Launch, LaunchArgs};

use crate::boxes::{as_boxes, roi_level};
use crate::check;
use crate::check::Dims;
use crate::cpu::CpuArgs;
use crate::{Cost, Op, OpError, Role, TensorDesc};

pub use cases::cases;

/// Maps RoIs to levels by their size.
#[derive(Debug, Clone, PartialEq)]
pub struct RoiLevels {
    /// Finest level, 2 for P2.
    pub min_level: i32,
    /// Coarsest level, 5 for P5.
    pub max_level: i32,
    /// Side in pixels of a square RoI of the canonical level, 224.
    pub canonical_size: f32,
    /// Level of such a RoI, 4.
    pub canonical_level: i32,
    /// Boxes are inclusive.
    pub plus_one: bool,
    /// Where the constant stands that decides at boundaries.
    pub rule: LevelEps,
}

const NAME: &str = "roi_levels";

impl Op for RoiLevels {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let ok = self.min_level <= self.max_level;
        check::parameter(NAME, "max_level", ok, "at least min_level", self.max_level)?;
        let ok = self.canonical_size > 0.0;
        check::parameter(NAME, "canonical_size", ok, "over 0", self.canonical_size)?;
        let mut dims = Dims::new(NAME, inputs, 2, updates)?;
        dims.f32("rois", &inputs[0], "[M, 4]")?;
        dims.i32("image_idx", &inputs[1], "[M]")?;
        Ok(vec![TensorDesc::new(Role::Index, &[dims.get("M")])])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 10 * outputs[0].len() as u64)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let (rois, image_idx) = (as_boxes(args.inputs[0].f32()), args.inputs[1].i32());
        let rows = rois.iter().zip(image_idx);
        for (level, (roi, &image)) in args.outputs[0].i32().iter_mut().zip(rows) {
            *level = if image < 0 { 0 } else { self.level(roi) - self.min_level };
        }
    }
}

impl RoiLevels {
    fn level(&self, roi: &[f32; 4]) -> i32 {
        let (min, max, plus_one) = (self.min_level, self.max_level, self.plus_one);
        roi_level(roi, min, max, self.canonical_size, self.canonical_level, plus_one, self.rule)
    }
}
