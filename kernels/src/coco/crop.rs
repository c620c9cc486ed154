//! A mask cropped to the rectangle that contains its pixels: most objects are far smaller than
//! images.

use super::Bitmap;
use super::polygon::crossings;

/// Pixels of a rectangle at (x, y) of an image; all pixels outside are 0.
#[derive(Debug, Clone, Default)]
pub(crate) struct Crop {
    pub(crate) x: usize,
    pub(crate) y: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
    /// 0 or 1, row-major.
    pub(crate) pixels: Vec<u8>,
}

impl Crop {
    /// The union of filled polygons in an image of `height` and `width`.
    pub(crate) fn of_polygons<P: AsRef<[f64]>>(
        polygons: &[P],
        height: usize,
        width: usize,
    ) -> Self {
        let mut marks: Vec<Vec<(usize, usize)>> = Vec::with_capacity(polygons.len());
        for polygon in polygons {
            let mut list = Vec::new();
            crossings(polygon.as_ref(), height, width, |column, row| list.push((column, row)));
            marks.push(list);
        }
        let mut crop = Self::around(marks.iter().flatten().copied());
        let mut fill = Vec::new();
        for list in &marks {
            fill.clear();
            fill.resize(crop.pixels.len(), 0);
            crop.fill_between(list, &mut fill);
            for (pixel, &inside) in crop.pixels.iter_mut().zip(&fill) {
                *pixel |= inside;
            }
        }
        crop
    }

    /// The pixels of runs: alternating lengths of zeros and ones down the columns, zeros first.
    pub(crate) fn of_runs(runs: impl Iterator<Item = usize>, height: usize, width: usize) -> Self {
        let size = height * width;
        let mut spans = Vec::new();
        let mut at = 0usize;
        for (i, len) in runs.enumerate() {
            let end = at.saturating_add(len).min(size);
            if i % 2 == 1 && end > at {
                spans.push((at, end));
            }
            at = end;
        }
        let (Some(first), Some(last)) = (spans.first(), spans.last()) else {
            return Self::default();
        };
        let x = first.0 / height;
        let cropped_width = (last.1 - 1) / height + 1 - x;
        let mut pixels = vec![0; height * cropped_width];
        for (start, end) in spans {
            for p in start..end {
                pixels[p % height * cropped_width + p / height - x] = 1;
            }
        }
        Self { x, y: 0, height, width: cropped_width, pixels }
    }

    /// A crop of zeros that covers the columns and rows of all marks, which are positions from
    /// [`crossings`].
    fn around(marks: impl Iterator<Item = (usize, usize)> + Clone) -> Self {
        let (columns, rows) = (marks.clone().map(|m| m.0), marks.map(|m| m.1));
        let (Some(x), Some(y)) = (columns.clone().min(), rows.clone().min()) else {
            return Self::default();
        };
        let (height, width) = (rows.max().unwrap_or(y) - y, columns.max().unwrap_or(x) + 1 - x);
        Self { x, y, height, width, pixels: vec![0; height * width] }
    }

    /// Sets in `fill` the pixels that have an odd number of marks at or above them in their column.
    fn fill_between(&self, marks: &[(usize, usize)], fill: &mut [u8]) {
        for &(column, row) in marks {
            // A mark below the last row of the rectangle affects no pixel.
            if row - self.y < self.height {
                fill[(row - self.y) * self.width + column - self.x] ^= 1;
            }
        }
        for row in 1..self.height {
            let (above, below) = fill.split_at_mut(row * self.width);
            let above = &above[(row - 1) * self.width..];
            for (pixel, up) in below[..self.width].iter_mut().zip(above) {
                *pixel ^= up;
            }
        }
    }

    /// The mask of the whole image.
    pub(crate) fn paste(&self, height: usize, width: usize) -> Bitmap {
        let mut bitmap = Bitmap::zeros(height, width);
        for (row, pixels) in self.pixels.chunks_exact(self.width.max(1)).enumerate() {
            let first = (self.y + row) * width + self.x;
            bitmap.pixels[first..first + self.width].copy_from_slice(pixels);
        }
        bitmap
    }

    /// The pixels of an image row from the crop's first column on; `None` if the row is empty.
    pub(crate) fn row(&self, y: usize) -> Option<&[u8]> {
        let row = y.checked_sub(self.y).filter(|&row| row < self.height)?;
        Some(&self.pixels[row * self.width..][..self.width])
    }
}
