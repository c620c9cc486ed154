//! The feature level that each RoI is pooled from.
//!
//! Matches torchvision's `LevelMapper`, or detectron2's `assign_boxes_to_levels`; see
//! [`crate::boxes::roi_level`] for the formulas and for maskrcnn-benchmark's differences.
//!
//! Edge cases: zero-area RoIs go to the finest level.

mod cases;

use choices::LevelEps;
use device::{Launch, LaunchArgs};

use crate::boxes::{as_boxes, epsilons, roi_level};
use crate::contract::{Dims, Flops, Kernel};
use crate::cpu::CpuArgs;
use crate::{OpError, TensorDesc, check, op};

pub use cases::cases;

op! {
    /// Maps RoIs to levels by their size.
    pub struct RoiLevels = "roi_levels" {
        /// Finest level, 2 for P2.
        pub min_level: i32,
        /// Coarsest level, 5 for P5.
        pub max_level: i32,
        /// Side in pixels of a square RoI of the canonical level, 224.
        pub canonical_size: f32 [|size| *size > 0.0, "over 0"],
        /// Level of a square RoI of size `canonical_size`, 4.
        pub canonical_level: i32,
        /// Box corners are inclusive: width = x2 - x1 + 1.
        pub plus_one: bool,
        /// Where the formula adds the epsilon that decides the level at boundaries.
        pub rule: LevelEps,
    }
    in RoiLevelsInputs {
        /// Boxes in network pixels.
        rois: f32 "[M, 4]",
        /// Image of the RoI; -1 in padding rows.
        image_idx: i32 "[M]",
    }
    out {
        /// The level minus `min_level`; 0 in padding rows.
        levels: Index "[M]",
    }
}

impl Kernel for RoiLevels {
    const FLOPS: Flops = Flops::Output(10);

    fn check(&self, _inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        let ok = self.min_level <= self.max_level;
        check::parameter(dims.op(), "max_level", ok, "at least min_level", self.max_level)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let [eps_in_log, eps_after_log] = epsilons(self.rule);
        let levels = args.outputs[0];
        vec![
            Launch::over("roi_levels_f32", levels.len())
                .tensors(args)
                .len(levels.len())
                .arg(self.min_level)
                .arg(self.max_level)
                .arg(self.canonical_size)
                .arg(self.canonical_level)
                .arg(self.plus_one)
                .arg(eps_in_log)
                .arg(eps_after_log),
        ]
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
