//! Training targets of the mask head: each positive RoI's part of its object's mask, S x S.
//!
//! Two rules:
//! * `RoiAlignBitmap` matches torchvision's `project_masks_on_boxes`: the object is rasterised at
//!   source size by COCO's rule (or decoded from runs), flipped, resized nearest to network size
//!   and averaged by RoIAlign (adaptive grid, not aligned, scale 1): soft targets.
//! * `CocoPolygon` matches maskrcnn-benchmark and detectron2: polygons are resized, flipped,
//!   shifted by the RoI's corner, scaled by S / max(side, `min_side`) and rasterised by COCO's rule
//!   at S x S to 0 or 1. `min_side` is 1 in maskrcnn-benchmark and 0.1 in detectron2. Neither
//!   project supports runs in this mode; here a target pixel has the value of the source pixel that
//!   contains its centre (0 outside the image).
//!
//! If a view swaps rows and columns, the target is computed in the source's orientation and then
//! transposed.
//!
//! Objects are decoded once per call, cropped to their extent. Exact except for the f32 averages.

mod bitmap;
mod cases;
mod polygon;
mod segments;

use std::collections::HashMap;

use choices::MaskTargetRule;
use device::{Arg, Buffer, Launch, LaunchArgs, StructArg};
use rayon::prelude::*;

use crate::coco::Crop;
use crate::contract::Kernel;
use crate::counted::rows_in_use;
use crate::cpu::CpuArgs;
use crate::op;
use crate::view::View;
use segments::{Outline, Segments};

pub use cases::cases;

op! {
    /// Computes mask targets from objects.
    #[derive(Copy)]
    pub struct MaskTargets = "mask_targets" {
        /// S, pixels per side of a target.
        pub side: usize [|side| *side > 0, "at least 1"],
        /// The rule that turns an object into a target.
        pub rule: MaskTargetRule,
        /// Flip polygons to W - x - 1 (inclusive boxes) instead of W - x.
        pub plus_one: bool,
        /// `CocoPolygon`: minimum side of a RoI in network pixels; smaller RoIs are enlarged to it.
        pub min_side: f32 [|side| *side > 0.0, "over 0"],
    }
    in MaskTargetsInputs {
        /// RoIs in network pixels.
        mask_rois: f32 "[M, 4]",
        /// Image of the RoI.
        image_idx: i32 "[M]",
        /// Index of the matched object within the image.
        matched: i32 "[M]",
        /// Number of RoIs in use.
        count: i32 "[1]",
        /// Kind (0 polygons, 1 runs), first row of `segm_parts`, number of rows.
        segm_index: i32 "[N, G, 3]",
        /// Offset and length of a polygon or list of runs, in values of `coords` or `runs`.
        segm_parts: i32 "[N, Pc, 2]",
        /// x, y pairs in source pixels.
        coords: f32 "[N, V]",
        /// Run lengths in column-major order, zeros first.
        runs: i32 "[N, Rc]",
        /// See [`crate::view::View`].
        views: i32 "[N, 15]",
    }
    out {
        /// 0 in rows at or past the count or without an image.
        targets: Mask "[M, side, side]",
    }
}

/// Source columns per strip.
const STRIP: usize = 32;

impl Kernel for MaskTargets {
    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let (inputs, targets) = (MaskTargetsInputs::of(&args.inputs), args.outputs[0]);
        let kernel = match self.rule {
            MaskTargetRule::CocoPolygon => "mask_targets_polygon",
            MaskTargetRule::RoiAlignBitmap => "mask_targets_average",
        };
        let launch = Launch::new(kernel, [targets.dim(0), 1, 1])
            .arg(rois(&inputs))
            .arg(segments(&inputs))
            .arg(targets.write())
            .int(self.side);
        vec![match self.rule {
            MaskTargetRule::CocoPolygon => launch.arg(self.plus_one).arg(self.min_side),
            MaskTargetRule::RoiAlignBitmap => launch.shared(self.side * STRIP * 4),
        }]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let inputs = &args.inputs;
        let targets = args.outputs[0].f32();
        let inputs = MaskTargetsInputs::of(inputs);
        let (rois, image_idx) = (inputs.mask_rois.f32(), inputs.image_idx.i32());
        let matched = inputs.matched.i32();
        let count = rows_in_use(inputs.count.i32(), image_idx.len());
        let key = |row: usize| {
            let image = usize::try_from(image_idx[row]).ok().filter(|_| row < count)?;
            Some((image, usize::try_from(matched[row]).ok()?))
        };
        let segments = Segments::of(&inputs);
        let views = inputs.views.i32();
        let view = |image| View::of(views, image);
        let mut slots = HashMap::new();
        let mut keys = Vec::new();
        for found in (0..image_idx.len()).filter_map(key) {
            slots.entry(found).or_insert_with(|| {
                keys.push(found);
                keys.len() - 1
            });
        }
        let objects: Vec<Object<'_>> = keys
            .into_par_iter()
            .map(|(image, object)| {
                let outline = segments.outline(image, object);
                let needed = self.rule == MaskTargetRule::RoiAlignBitmap
                    || matches!(outline, Outline::Runs(_));
                let source = || view(image).axes().map(|axis| axis.source.max(0) as usize);
                let crops = if needed { outline.crops(source()) } else { vec![] };
                Object { image, outline, crops }
            })
            .collect();
        targets.par_chunks_mut(self.side * self.side).enumerate().for_each(|(row, target)| {
            target.fill(0.0);
            let Some(object) = key(row).map(|key| &objects[slots[&key]]) else { return };
            let view = view(object.image);
            // The RoI in the source's orientation.
            let [y1, y2] = [1, 3].map(|i| rois[4 * row + i]);
            let [x1, x2] = [0, 2].map(|i| rois[4 * row + i]);
            let [[y1, y2], [x1, x2]] = view.turned([[y1, y2], [x1, x2]]);
            let roi = [x1, y1, x2, y2];
            match (&self.rule, &object.outline) {
                (MaskTargetRule::RoiAlignBitmap, _) => {
                    bitmap::average(&object.crops, view, roi, self.side, target);
                }
                (MaskTargetRule::CocoPolygon, Outline::Polygons(polygons)) => {
                    polygon::rasterize(polygons, view, roi, self, target);
                }
                (MaskTargetRule::CocoPolygon, Outline::Runs(_)) => {
                    bitmap::nearest(&object.crops, view, roi, self, target);
                }
            }
            if view.transposed != 0 {
                transpose(target, self.side);
            }
        });
    }
}

/// Kernel argument: boxes, images and objects of the rows, and their count.
fn rois(inputs: &MaskTargetsInputs<&Buffer<'_>>) -> Arg {
    let MaskTargetsInputs { mask_rois, image_idx, matched, count, .. } = *inputs;
    let tensors = [mask_rois, image_idx, matched, count].map(Buffer::read);
    StructArg::new().pointers(tensors, 4).arg()
}

/// Kernel argument: the objects and views of the images, and the capacities per image.
fn segments(inputs: &MaskTargetsInputs<&Buffer<'_>>) -> Arg {
    let MaskTargetsInputs { segm_index, segm_parts, coords, runs, .. } = *inputs;
    let tensors = [segm_index, segm_parts, coords, runs, inputs.views].map(Buffer::read);
    let dims =
        [segm_index.dim(0), segm_index.dim(1), segm_parts.dim(1), coords.dim(1), runs.dim(1)];
    StructArg::new().pointers(tensors, 5).ints(dims).arg()
}

/// An object matched to at least one RoI.
struct Object<'a> {
    image: usize,
    outline: Outline<'a>,
    /// The object's pixels; empty if the rule rasterises polygons for each RoI.
    crops: Vec<Crop>,
}

/// Transposes a square.
fn transpose(square: &mut [f32], side: usize) {
    for row in 0..side {
        (0..row).for_each(|column| square.swap(row * side + column, column * side + row));
    }
}
