//! Anchors of a cell and of a whole feature map.

use super::geometry::Box4;

/// Anchors of one feature map.
#[derive(Debug, Clone, PartialEq)]
pub struct AnchorLevel {
    /// Rows of the feature map.
    pub height: usize,
    /// Columns of the feature map.
    pub width: usize,
    /// Distance between adjacent rows in image pixels.
    pub stride_h: f32,
    /// Distance between adjacent columns in image pixels.
    pub stride_w: f32,
    /// Anchors of the cell at row 0, column 0.
    pub cells: Vec<Box4>,
}

impl AnchorLevel {
    /// Number of anchors.
    pub fn len(&self) -> usize {
        self.height * self.width * self.cells.len()
    }

    /// True if there are no anchors.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Anchors of a cell as in torchvision's AnchorGenerator: centred at 0, corners rounded half to
/// even; `ratios` are height / width. Order: for each ratio, all sizes.
pub fn cell_anchors(sizes: &[f32], ratios: &[f32]) -> Vec<Box4> {
    let mut cells = Vec::with_capacity(sizes.len() * ratios.len());
    for &ratio in ratios {
        let h_ratio = ratio.sqrt();
        let w_ratio = 1.0 / h_ratio;
        for &size in sizes {
            let (w, h) = (w_ratio * size, h_ratio * size);
            cells.push([-w, -h, w, h].map(|v| (v / 2.0).round_ties_even()));
        }
    }
    cells
}

/// Anchors of a cell as in Detectron and maskrcnn-benchmark: inclusive boxes around the centre of a
/// cell of `stride` pixels. Sides are rounded for boxes of the cell's area, and then scaled to each
/// size. Order: for each ratio, all sizes.
pub fn cell_anchors_detectron(stride: f32, sizes: &[f32], ratios: &[f32]) -> Vec<Box4> {
    let stride = f64::from(stride);
    let centre = 0.5 * (stride - 1.0);
    let mut cells = Vec::with_capacity(sizes.len() * ratios.len());
    for &ratio in ratios {
        // The reference's ratios are f64 literals: its 0.3 differs from the f32 value of 0.3.
        let ratio = shortest_f64(ratio);
        let w = (stride * stride / ratio).sqrt().round_ties_even();
        let h = (w * ratio).round_ties_even();
        for &size in sizes {
            let factor = f64::from(size) / stride;
            let (half_w, half_h) = (0.5 * (w * factor - 1.0), 0.5 * (h * factor - 1.0));
            let cell = [centre - half_w, centre - half_h, centre + half_w, centre + half_h];
            cells.push(cell.map(|v| v as f32));
        }
    }
    cells
}

/// Anchors of a cell as in detectron2's DefaultAnchorGenerator: centred at 0, computed in f64 and
/// not rounded; `ratios` are height / width. Order: for each size, all ratios.
pub fn cell_anchors_exact(sizes: &[f32], ratios: &[f32]) -> Vec<Box4> {
    let mut cells = Vec::with_capacity(sizes.len() * ratios.len());
    for size in sizes.iter().copied().map(shortest_f64) {
        for ratio in ratios.iter().copied().map(shortest_f64) {
            let w = (size * size / ratio).sqrt();
            let h = ratio * w;
            cells.push([-w, -h, w, h].map(|v| (v / 2.0) as f32));
        }
    }
    cells
}

/// The f64 nearest to the shortest decimal form of `v`, that is, to the literal that `v` was read
/// from.
fn shortest_f64(v: f32) -> f64 {
    v.to_string().parse().unwrap_or(f64::from(v))
}

/// Writes the anchors of `level` into `out` in the order (y, x, cell).
pub fn grid_anchors(level: &AnchorLevel, out: &mut [Box4]) {
    let positions =
        (0..level.height).flat_map(|y| (0..level.width).map(move |x| (x as f32, y as f32)));
    let row = out.chunks_exact_mut(level.cells.len().max(1));
    for (anchors, (x, y)) in row.zip(positions) {
        let (dx, dy) = (x * level.stride_w, y * level.stride_h);
        for (anchor, cell) in anchors.iter_mut().zip(&level.cells) {
            *anchor = [cell[0] + dx, cell[1] + dy, cell[2] + dx, cell[3] + dy];
        }
    }
}
