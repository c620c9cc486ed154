//! Training targets of the mask head: each positive RoI's part of its object's mask, S x S.
//!
//! Two rules:
//! * `RoiAlignBitmap` matches torchvision's `project_masks_on_boxes`: the object is rasterised at
//!   source size by COCO's rule (or decoded from runs), mirrored, resized nearest to network size
//!   and averaged by RoIAlign (adaptive grid, not aligned, scale 1): soft targets.
//! * `CocoPolygon` matches maskrcnn-benchmark: polygons are resized, mirrored, shifted by the RoI's
//!   corner, scaled by S / max(side, `min_side`) in f32 and rasterised by COCO's rule at S x S to 0
//!   or to 1. The least side is 1 there, and 0.1 in detectron2. Neither has a rule for runs in this
//!   mode; here a target pixel takes the source pixel that its centre falls on (0 outside the
//!   image).
//!
//! Where a view lets rows and columns change places, the target is made along the source's axes,
//! and then its own change places.
//!
//! Tensors (all in): `mask_rois [M, 4]` f32 (network pixels), `image_idx [M]`, `matched [M]`
//! (object of the image), `count [1]`, `segm_index [N, G, 3]` (kind: 0 polygons, 1 runs; first
//! part; number of parts), `segm_parts [N, Pc, 2]` (offset, length, in values of `coords` or
//! `runs`), `coords [N, V]` f32 (x, y pairs in source pixels), `runs [N, Rc]` i32 (down the
//! columns, zeros first), `views [N, 15]` i32 ([`crate::view::View`]) -> `targets [M, S, S]`
//! (Role::Mask, overwritten; 0 in rows at or past the count and in rows of no image).
//! Objects are decoded once a call, cut to their extent. Exact but for the f32 averages.

mod bitmap;
mod cases;
mod cpu;
mod cuda;
mod polygon;
mod segments;
#[cfg(test)]
mod tests;

use choices::MaskTargetRule;
use device::{Launch, LaunchArgs};

use crate::check::{self, Dims};
use crate::cpu::CpuArgs;
use crate::{Op, OpError, Role, TensorDesc};

pub use cases::cases;

/// Cuts mask targets out of objects.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MaskTargets {
    /// S, pixels a side of a target.
    pub side: usize,
    /// How an object becomes a target.
    pub rule: MaskTargetRule,
    /// Mirror polygons to W - x - 1 (inclusive boxes) instead of W - x.
    pub plus_one: bool,
    /// `CocoPolygon`: least side of a RoI in network pixels; a smaller one counts as this.
    pub min_side: f32,
}

op_inputs! {
    /// The inputs of [`MaskTargets`].
    pub struct MaskTargetsInputs {
        /// `[M, 4]` f32.
        mask_rois,
        /// `[M]` i32.
        image_idx,
        /// `[M]` i32.
        matched,
        /// RoIs in use, `[1]` i32.
        count,
        /// `[N, G, 3]` i32.
        segm_index,
        /// `[N, Pc, 2]` i32.
        segm_parts,
        /// `[N, V]` f32.
        coords,
        /// `[N, Rc]` i32.
        runs,
        /// `[N, 15]` i32.
        views,
    }
}

const NAME: &str = "mask_targets";

impl Op for MaskTargets {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let mut dims = Dims::new(NAME, inputs, MaskTargetsInputs::LEN, updates)?;
        let inputs = MaskTargetsInputs::of(inputs);
        check::parameter(NAME, "side", self.side > 0, "at least 1", self.side)?;
        check::parameter(NAME, "min_side", self.min_side > 0.0, "over 0", self.min_side)?;
        dims.f32("mask_rois", inputs.mask_rois, "[M, 4]")?;
        dims.i32("image_idx", inputs.image_idx, "[M]")?;
        dims.i32("matched", inputs.matched, "[M]")?;
        dims.i32("count", inputs.count, "[1]")?;
        dims.i32("segm_index", inputs.segm_index, "[N, G, 3]")?;
        dims.i32("segm_parts", inputs.segm_parts, "[N, Pc, 2]")?;
        dims.f32("coords", inputs.coords, "[N, V]")?;
        dims.i32("runs", inputs.runs, "[N, Rc]")?;
        dims.i32("views", inputs.views, "[N, 15]")?;
        Ok(vec![TensorDesc::new(Role::Mask, &[dims.get("M"), self.side, self.side])])
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        cpu::mask_targets(self, &args.inputs, args.outputs[0].f32());
    }
}
