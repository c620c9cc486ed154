//! Targets from an object's bitmap: RoIAlign at network size, or the nearest source pixel.
//!
//! The bitmap at network size is never built: each of its pixels is the source pixel selected by
//! nearest-neighbour resizing, so source rows and columns are looked up where the RoI needs them.

use super::MaskTargets;
use crate::coco::Crop;
use crate::ops::roi_align::taps::{AxisTaps, Grid};
use crate::view::View;

/// RoIAlign of the object at network size: adaptive grid, not aligned, scale 1.
pub(super) fn average(crops: &[Crop], view: View, roi: [f32; 4], side: usize, target: &mut [f32]) {
    let grid = Grid { pooled: side, sampling_ratio: 0, aligned: false };
    let network = view.axes().map(|axis| axis.network as usize);
    let [rows, columns] = grid.taps(roi, 1.0, network);
    let sources: Vec<Vec<(usize, f32)>> = (0..side)
        .map(|bin| {
            let column = |&(c, weight): &(u32, f32)| (view.x.nearest(c as usize), weight);
            columns.bin(bin).iter().map(column).collect()
        })
        .collect();
    let mut line = Line { source: None, values: vec![0.0; side], columns: sources };
    for (bin, target) in target.chunks_exact_mut(side).enumerate() {
        add_rows(crops, view, &rows, bin, &mut line, target);
    }
}

/// Sums over the columns of one source row, cached because neighbouring network rows map to the
/// same source row.
struct Line {
    source: Option<usize>,
    values: Vec<f32>,
    columns: Vec<Vec<(usize, f32)>>,
}

impl Line {
    /// The sums of source row `y`, for each column bin.
    fn at(&mut self, crops: &[Crop], y: usize) -> &[f32] {
        if self.source != Some(y) {
            self.source = Some(y);
            for (value, columns) in self.values.iter_mut().zip(&self.columns) {
                *value = match crops {
                    [crop] => row_sum(crop, y, columns),
                    _ => {
                        let set = |&&(x, _): &&(usize, f32)| is_set(crops, y, x);
                        columns.iter().filter(set).map(|c| c.1).sum()
                    }
                };
            }
        }
        &self.values
    }
}

/// Sum of the weights of the set pixels.
fn row_sum(crop: &Crop, y: usize, columns: &[(usize, f32)]) -> f32 {
    let Some(pixels) = crop.row(y) else { return 0.0 };
    let pixel = |x: usize| x.checked_sub(crop.x).and_then(|x| pixels.get(x)).copied().unwrap_or(0);
    columns.iter().map(|&(x, weight)| weight * f32::from(pixel(x))).sum()
}

/// Adds the weighted rows of a bin to `target`.
fn add_rows(
    crops: &[Crop],
    view: View,
    rows: &AxisTaps,
    bin: usize,
    line: &mut Line,
    target: &mut [f32],
) {
    for &(row, weight) in rows.bin(bin) {
        let values = line.at(crops, view.y.nearest(row as usize));
        for (target, value) in target.iter_mut().zip(values) {
            *target += weight * value;
        }
    }
}

/// The source pixel under each target pixel's centre; 0 outside the image.
pub(super) fn nearest(
    crops: &[Crop],
    view: View,
    roi: [f32; 4],
    op: &MaskTargets,
    target: &mut [f32],
) {
    let MaskTargets { side, min_side, .. } = *op;
    let source = |axis: usize, i: usize| {
        let size = (roi[axis + 2] - roi[axis]).max(min_side);
        let at = roi[axis] + (i as f32 + 0.5) * size / side as f32;
        [view.x, view.y][axis].under(at)
    };
    for (i, target) in target.iter_mut().enumerate() {
        let place = source(1, i / side).zip(source(0, i % side));
        let set = place.is_some_and(|(y, x)| is_set(crops, y, x));
        *target = if set { 1.0 } else { 0.0 };
    }
}

fn is_set(crops: &[Crop], y: usize, x: usize) -> bool {
    crops.iter().any(|crop| {
        let pixel = crop.row(y).and_then(|row| row.get(x.checked_sub(crop.x)?).copied());
        pixel == Some(1)
    })
}
