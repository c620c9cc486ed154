//! CPU reference of `mask_targets`: objects decoded once, then a RoI a task.

use std::collections::HashMap;

use rayon::prelude::*;

use super::segments::{Outline, Segments};
use super::{MaskTargetRule, MaskTargets, MaskTargetsInputs, bitmap, polygon};
use crate::coco::Crop;
use crate::counted::rows_in_use;
use crate::cpu::TensorRef;
use crate::view::View;

/// An object of a RoI.
struct Object<'a> {
    image: usize,
    outline: Outline<'a>,
    /// Its pixels, unless the rule works on polygons.
    crops: Vec<Crop>,
}

/// Writes the target of every RoI.
pub(super) fn mask_targets(op: &MaskTargets, inputs: &[TensorRef<'_>], targets: &mut [f32]) {
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
            let needed =
                op.rule == MaskTargetRule::RoiAlignBitmap || matches!(outline, Outline::Runs(_));
            let source = || view(image).axes().map(|axis| axis.source.max(0) as usize);
            let crops = if needed { outline.crops(source()) } else { vec![] };
            Object { image, outline, crops }
        })
        .collect();
    targets.par_chunks_mut(op.side * op.side).enumerate().for_each(|(row, target)| {
        target.fill(0.0);
        let Some(object) = key(row).map(|key| &objects[slots[&key]]) else { return };
        let view = view(object.image);
        // Along the source's axes.
        let [y1, y2] = [1, 3].map(|i| rois[4 * row + i]);
        let [x1, x2] = [0, 2].map(|i| rois[4 * row + i]);
        let [[y1, y2], [x1, x2]] = view.turned([[y1, y2], [x1, x2]]);
        let roi = [x1, y1, x2, y2];
        match (&op.rule, &object.outline) {
            (MaskTargetRule::RoiAlignBitmap, _) => {
                bitmap::average(&object.crops, view, roi, op.side, target);
            }
            (MaskTargetRule::CocoPolygon, Outline::Polygons(polygons)) => {
                polygon::rasterize(polygons, view, roi, op, target);
            }
            (MaskTargetRule::CocoPolygon, Outline::Runs(_)) => {
                bitmap::nearest(&object.crops, view, roi, op, target);
            }
        }
        if view.transposed != 0 {
            transpose(target, op.side);
        }
    });
}

/// Lets the axes of a square change places.
fn transpose(square: &mut [f32], side: usize) {
    for row in 0..side {
        (0..row).for_each(|column| square.swap(row * side + column, column * side + row));
    }
}
