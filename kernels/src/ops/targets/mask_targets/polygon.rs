//! The rule of maskrcnn-benchmark: polygons moved into the RoI, rasterised at the target's size.
//!
//! Arithmetic in f32 and in that reference's order (resize, flip at network size, shift, scale),
//! because rounding decides on which side of a pixel's centre a boundary falls.

use super::view::View;
use crate::coco::Crop;

/// How vertices get from source pixels to network pixels: resized, then mirrored.
#[derive(Debug, Clone, Copy)]
pub struct ToNetwork {
    /// Network size over source size, of x and y.
    pub ratios: [f32; 2],
    /// Columns of the network's image if it is mirrored, and whether boxes are inclusive.
    pub mirror: Option<(f32, bool)>,
}

impl ToNetwork {
    /// Coordinate `i` (even: x) of a polygon.
    pub fn place(&self, i: usize, value: f32) -> f32 {
        let value = value * self.ratios[i % 2];
        match self.mirror {
            Some((width, true)) if i.is_multiple_of(2) => width - value - 1.0,
            Some((width, false)) if i.is_multiple_of(2) => width - value,
            _ => value,
        }
    }
}

/// Writes the target of a RoI of an object with polygons in source pixels.
pub(super) fn rasterize(
    polygons: &[&[f32]],
    view: View,
    roi: [f32; 4],
    side: usize,
    plus_one: bool,
    target: &mut [f32],
) {
    let axis = |i: usize| {
        let resize = view.network[1 - i] as f32 / view.source[1 - i] as f32;
        let scale = side as f32 / (roi[i + 2] - roi[i]).max(1.0);
        (resize, roi[i], scale)
    };
    let axes = [axis(0), axis(1)];
    let to_network =
        ToNetwork { ratios: axes.map(|(resize, ..)| resize), mirror: view.mirror(plus_one) };
    let moved: Vec<Vec<f64>> = polygons
        .iter()
        .map(|polygon| {
            let place = |(i, &v): (usize, &f32)| {
                let (_, corner, scale) = axes[i % 2];
                f64::from((to_network.place(i, v) - corner) * scale)
            };
            polygon.iter().enumerate().map(place).collect()
        })
        .collect();
    let bitmap = Crop::of_polygons(&moved, side, side).paste(side, side);
    for (target, &pixel) in target.iter_mut().zip(&bitmap.pixels) {
        *target = f32::from(pixel);
    }
}
