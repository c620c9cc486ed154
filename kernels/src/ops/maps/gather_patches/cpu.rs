//! CPU reference of `gather_patches` and its gradient.

use rayon::prelude::*;

use crate::cpu::{TensorMut, TensorRef};

/// Feature rows that one task of the gradient owns.
const BAND: usize = 8;

/// A feature cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) level: usize,
    pub(crate) y: usize,
    pub(crate) x: usize,
}

/// The cell of an anchor; none for -1.
pub(crate) fn cell(anchor: i32, anchors_per_cell: usize, sizes: &[[usize; 2]]) -> Option<Cell> {
    let mut rest = usize::try_from(anchor).ok()? / anchors_per_cell;
    for (level, [height, width]) in sizes.iter().enumerate() {
        if rest < height * width {
            return Some(Cell { level, y: rest / width, x: rest % width });
        }
        rest -= height * width;
    }
    panic!("anchor {anchor} is beyond the maps {sizes:?} with {anchors_per_cell} anchors a cell");
}

/// The cells of the patch that lie on the map: (place in the patch, y, x).
pub(crate) fn neighbours(
    c: Cell,
    reach: usize,
    [height, width]: [usize; 2],
) -> impl Iterator<Item = (usize, usize, usize)> {
    let side = 2 * reach + 1;
    (0..side * side).filter_map(move |k| {
        let y = (c.y + k / side).checked_sub(reach).filter(|&y| y < height)?;
        let x = (c.x + k % side).checked_sub(reach).filter(|&x| x < width)?;
        Some((k, y, x))
    })
}

/// Copies the patch of each anchor; a patch is a task.
pub(super) fn gather(
    [anchors_per_cell, reach]: [usize; 2],
    features: &[&TensorRef<'_>],
    idx: &TensorRef<'_>,
    patches: &mut [f32],
) {
    let channels = features[0].shape()[3];
    if patches.is_empty() {
        return;
    }
    let sizes: Vec<_> = features.iter().map(|f| [f.shape()[1], f.shape()[2]]).collect();
    let maps: Vec<_> = features.iter().map(|f| f.f32()).collect();
    let (per_image, idx) = (idx.shape()[1], idx.i32());
    let area = (2 * reach + 1).pow(2);
    patches.par_chunks_mut(area * channels).enumerate().for_each(|(row, patch)| {
        patch.fill(0.0);
        let Some(c) = cell(idx[row], anchors_per_cell, &sizes) else { return };
        let [height, width] = sizes[c.level];
        let image = row / per_image;
        for (k, y, x) in neighbours(c, reach, [height, width]) {
            let from = ((image * height + y) * width + x) * channels;
            patch[k * channels..][..channels]
                .copy_from_slice(&maps[c.level][from..from + channels]);
        }
    });
}

/// Adds the gradient of each patch to its map. A task owns a band of rows of one image and adds
/// the patches that touch it in their order.
pub(super) fn scatter(
    [anchors_per_cell, reach]: [usize; 2],
    sizes: &[[usize; 2]],
    grad_output: &TensorRef<'_>,
    idx: &TensorRef<'_>,
    grads: &mut [TensorMut<'_>],
) {
    let channels = grad_output.shape()[3];
    let area = (2 * reach + 1).pow(2);
    let per_image = idx.shape()[1];
    let grad_output = grad_output.f32();
    let cells: Vec<_> = idx.i32().iter().map(|&a| cell(a, anchors_per_cell, sizes)).collect();
    for (level, grad) in grads.iter_mut().enumerate() {
        let [height, width] = sizes[level];
        let row_len = width * channels;
        if height * row_len == 0 {
            continue;
        }
        grad.f32().par_chunks_mut(height * row_len).enumerate().for_each(|(image, grad)| {
            let rows = image * per_image..(image + 1) * per_image;
            let of_level: Vec<(usize, Cell)> = rows
                .filter_map(|row| Some((row, cells[row].filter(|c| c.level == level)?)))
                .collect();
            grad.par_chunks_mut(BAND * row_len).enumerate().for_each(|(band, grad)| {
                grad.fill(0.0);
                let first = band * BAND;
                let rows = first..first + grad.len() / row_len;
                for &(row, c) in &of_level {
                    let patch = &grad_output[row * area * channels..][..area * channels];
                    for (k, y, x) in neighbours(c, reach, [height, width]) {
                        if rows.contains(&y) {
                            let to = ((y - first) * width + x) * channels;
                            let g = &patch[k * channels..][..channels];
                            add(&mut grad[to..to + channels], g);
                        }
                    }
                }
            });
        });
    }
}

fn add(y: &mut [f32], x: &[f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += x;
    }
}
