//! Targets as in maskrcnn-benchmark and detectron2: polygons moved into the RoI, rasterised at the
//! target's size.
//!
//! The steps have the order of both projects (resize, flip at network size, shift, scale). They are
//! in f32 with `plus_one`, as in maskrcnn-benchmark, else in f64, as in detectron2, because
//! rounding decides on which side of a pixel's centre a boundary falls.

use super::MaskTargets;
use crate::coco::Crop;
use crate::view::{View, as_f32};

/// Writes the target of a RoI whose object has polygons in source pixels.
pub(super) fn rasterize(
    polygons: &[&[f32]],
    view: View,
    roi: [f32; 4],
    op: &MaskTargets,
    target: &mut [f32],
) {
    let MaskTargets { side, plus_one, min_side, .. } = *op;
    let rounded = |v: f64| as_f32(v, plus_one);
    let axis = |i: usize| {
        let [low, high] = [roi[i], roi[i + 2]].map(f64::from);
        let scale = rounded(side as f64 / rounded(high - low).max(f64::from(min_side)));
        ([view.x, view.y][i], low, scale)
    };
    let axes = [axis(0), axis(1)];
    let moved: Vec<Vec<f64>> = polygons
        .iter()
        .map(|polygon| {
            let place = |(i, &v): (usize, &f32)| {
                let (axis, corner, scale) = axes[i % 2];
                rounded(rounded(axis.place(v, plus_one) - corner) * scale)
            };
            polygon.iter().enumerate().map(place).collect()
        })
        .collect();
    let bitmap = Crop::of_polygons(&moved, side, side).paste(side, side);
    for (target, &pixel) in target.iter_mut().zip(&bitmap.pixels) {
        *target = f32::from(pixel);
    }
}
