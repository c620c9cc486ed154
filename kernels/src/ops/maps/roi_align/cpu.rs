//! CPU reference of `roi_align` and its gradient.

use rayon::prelude::*;

use super::taps::{AxisTaps, Grid};
use crate::counted::rows_in_use;
use crate::cpu::{TensorMut, TensorRef};
use crate::isa::{Isa, wide};

/// Feature rows that a task of the gradient writes.
const BAND: usize = 8;

/// A feature map of one level.
pub(super) struct Map<'a> {
    values: &'a [f32],
    size: [usize; 2],
    channels: usize,
}

impl<'a> Map<'a> {
    /// A map of shape `[N, h, w, C]`.
    pub(super) fn new(values: &'a [f32], shape: &[usize]) -> Self {
        Self { values, size: [shape[1], shape[2]], channels: shape[3] }
    }

    /// The channels at a position.
    fn at(&self, image: usize, y: u32, x: u32) -> &'a [f32] {
        let row = image * self.size[0] + y as usize;
        let first = (row * self.size[1] + x as usize) * self.channels;
        &self.values[first..first + self.channels]
    }
}

/// The RoIs, with their image and level.
pub(super) struct Rois<'a> {
    boxes: &'a [f32],
    image_idx: &'a [i32],
    levels: &'a [i32],
    count: usize,
    spatial_scales: &'a [f32],
}

/// A RoI that is in use.
struct Roi {
    image: usize,
    level: usize,
    corners: [f32; 4],
}

impl<'a> Rois<'a> {
    pub(super) fn of(
        [rois, image_idx, levels, count]: [&TensorRef<'a>; 4],
        spatial_scales: &'a [f32],
    ) -> Self {
        let (image_idx, levels) = (image_idx.i32(), levels.i32());
        let count = rows_in_use(count.i32(), image_idx.len());
        Self { boxes: rois.f32(), image_idx, levels, count, spatial_scales }
    }

    fn get(&self, row: usize) -> Option<Roi> {
        let image = usize::try_from(self.image_idx[row]).ok().filter(|_| row < self.count)?;
        let level = usize::try_from(self.levels[row]).ok()?;
        assert!(level < self.spatial_scales.len(), "roi {row} is on level {level}");
        Some(Roi { image, level, corners: std::array::from_fn(|i| self.boxes[4 * row + i]) })
    }
}

/// Averages of every RoI; one task per RoI.
pub(super) fn forward(grid: Grid, maps: &[Map<'_>], rois: &Rois<'_>, y: &mut [f32]) {
    let channels = maps[0].channels;
    let row_len = grid.pooled * grid.pooled * channels;
    if row_len == 0 {
        return;
    }
    let isa = Isa::get();
    y.par_chunks_mut(row_len).enumerate().for_each(|(row, y)| {
        y.fill(0.0);
        let Some(roi) = rois.get(row) else { return };
        let map = &maps[roi.level];
        let [rows, cols] = grid.taps(roi.corners, rois.spatial_scales[roi.level], map.size);
        let mut taps = Vec::new();
        for (bin, y) in y.chunks_exact_mut(channels).enumerate() {
            taps.clear();
            for &(row, row_weight) in rows.bin(bin / grid.pooled) {
                let taps_of_row = cols.bin(bin % grid.pooled).iter().map(|&(col, col_weight)| {
                    (row_weight * col_weight, map.at(roi.image, row, col))
                });
                taps.extend(taps_of_row);
            }
            add_taps(isa, y, &taps);
        }
    });
}

wide! {
    /// Adds the taps in order, four per pass, so that `y` is loaded and stored a quarter as often.
    fn add_taps(y: &mut [f32], taps: &[(f32, &[f32])]) {
        let (fours, rest) = taps.as_chunks::<4>();
        for &[(w0, x0), (w1, x1), (w2, x2), (w3, x3)] in fours {
            for ((((y, x0), x1), x2), x3) in y.iter_mut().zip(x0).zip(x1).zip(x2).zip(x3) {
                *y = *y + w0 * x0 + w1 * x1 + w2 * x2 + w3 * x3;
            }
        }
        for &(weight, x) in rest {
            add_scaled(y, weight, x);
        }
    }
}

/// A RoI in the gradient: the positions it writes, and their weights.
struct Placed {
    row: usize,
    image: usize,
    level: usize,
    extent: (u32, u32),
    taps: [AxisTaps; 2],
}

/// Gradient of every level. Each task writes a band of feature rows of one image, and adds the RoIs
/// that overlap the band in order. No two tasks write the same element, and the summation order is
/// fixed. `grad_output` is multiplied by `scale`.
pub(super) fn backward(
    grid: Grid,
    level_sizes: &[[usize; 2]],
    (grad_output, scale): (&TensorRef<'_>, f32),
    rois: &Rois<'_>,
    grads: &mut [TensorMut<'_>],
) {
    let channels = grad_output.shape()[3];
    let (grad_output, isa) = (grad_output.f32(), Isa::get());
    let placed: Vec<Placed> = (0..rois.count)
        .into_par_iter()
        .filter_map(|row| place(grid, level_sizes, rois, row))
        .map(|mut placed| {
            placed.taps[0].scale(scale);
            placed
        })
        .collect();
    for (level, grad) in grads.iter_mut().enumerate() {
        let images = grad.shape()[0];
        let [height, width] = level_sizes[level];
        if images * height * width * channels == 0 {
            continue;
        }
        let of_level: Vec<&Placed> = placed.iter().filter(|p| p.level == level).collect();
        let row_len = width * channels;
        grad.f32().par_chunks_mut(height * row_len).enumerate().for_each(|(image, grad)| {
            let of_image: Vec<&Placed> =
                of_level.iter().copied().filter(|p| p.image == image).collect();
            grad.par_chunks_mut(BAND * row_len).enumerate().for_each(|(band, grad)| {
                grad.fill(0.0);
                let first = band * BAND;
                let last = first + grad.len() / row_len - 1;
                let touches =
                    |p: &&&Placed| p.extent.0 as usize <= last && p.extent.1 as usize >= first;
                for p in of_image.iter().filter(touches) {
                    let bins = grid.pooled * grid.pooled * channels;
                    let g = &grad_output[p.row * bins..][..bins];
                    scatter(isa, grid, p, (g, channels), grad, (first, row_len));
                }
            });
        });
    }
}

/// Taps of the RoI in `row`; `None` if the RoI is unused or does not overlap its map.
fn place(grid: Grid, level_sizes: &[[usize; 2]], rois: &Rois<'_>, row: usize) -> Option<Placed> {
    let Roi { image, level, corners } = rois.get(row)?;
    let taps = grid.taps(corners, rois.spatial_scales[level], level_sizes[level]);
    Some(Placed { row, image, level, extent: taps[0].extent()?, taps })
}

wide! {
    /// Adds the `gradient` (values, channels) of a RoI to the feature rows in `grad`, which starts
    /// at row `band.0` and has `band.1` elements per row.
    fn scatter(
        grid: Grid,
        placed: &Placed,
        gradient: (&[f32], usize),
        grad: &mut [f32],
        band: (usize, usize),
    ) {
        let ((grad_output, channels), (first, row_len)) = (gradient, band);
        let [rows, cols] = &placed.taps;
        for ph in 0..grid.pooled {
            for &(row, row_weight) in rows.bin(ph) {
                let Some(start) = (row as usize).checked_sub(first).map(|r| r * row_len) else {
                    continue;
                };
                let Some(line) = grad.get_mut(start..start + row_len) else { continue };
                for pw in 0..grid.pooled {
                    let g = &grad_output[(ph * grid.pooled + pw) * channels..][..channels];
                    for &(col, col_weight) in cols.bin(pw) {
                        let place = &mut line[col as usize * channels..][..channels];
                        add_scaled(place, row_weight * col_weight, g);
                    }
                }
            }
        }
    }
}

/// `y += weight * x`.
#[inline(always)]
fn add_scaled(y: &mut [f32], weight: f32, x: &[f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += weight * x;
    }
}
