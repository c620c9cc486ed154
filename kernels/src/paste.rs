//! Pasting a predicted mask into the image: the last step of evaluation.
//!
//! Matches torchvision's `paste_masks_in_image` with padding 1 (and maskrcnn-benchmark's `Masker`):
//! the S x S mask gets a border of zeros, its box grows by (S+2)/S about its centre, corners are
//! cut toward zero to integers, and the padded mask is resized bilinearly to the box, both corners
//! included.

use crate::coco::{Bitmap, RunWriter};
use crate::resize::{BilinearTap, bilinear_tap};

/// The part of a pasted mask that lies in the image; 0 elsewhere.
#[derive(Debug, Clone, PartialEq)]
pub struct PastedMask {
    /// First column in the image.
    pub x: usize,
    /// First row in the image.
    pub y: usize,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
    /// Probabilities, row-major.
    pub soft: Vec<f32>,
    /// Size of the image.
    image: [usize; 2],
}

/// Pastes `mask` (`side` x `side` probabilities) where `bbox` (x1, y1, x2, y2 in image pixels) lies
/// in an image of `height` and `width`. Nothing remains of a box outside the image.
pub fn paste_mask(
    mask: &[f32],
    side: usize,
    bbox: [f32; 4],
    height: usize,
    width: usize,
) -> PastedMask {
    assert_eq!(mask.len(), side * side, "a mask of {side} x {side}");
    let [x1, y1, x2, y2] = expand(bbox, (side + 2) as f32 / side as f32).map(|v| v as i64);
    let columns = taps(x1, x2, width, side);
    let rows = taps(y1, y2, height, side);
    let padded = |row: usize, col: usize| {
        let inside = (1..=side).contains(&row) && (1..=side).contains(&col);
        if inside { mask[(row - 1) * side + col - 1] } else { 0.0 }
    };
    let mut soft = Vec::with_capacity(rows.1.len() * columns.1.len());
    for r in &rows.1 {
        for c in &columns.1 {
            let top = blend(c.fraction, padded(r.low, c.low), padded(r.low, c.high));
            let bottom = blend(c.fraction, padded(r.high, c.low), padded(r.high, c.high));
            soft.push(blend(r.fraction, top, bottom));
        }
    }
    let (y, x) = (rows.0, columns.0);
    let (rows, columns) = (rows.1.len(), columns.1.len());
    PastedMask { x, y, height: rows, width: columns, soft, image: [height, width] }
}

fn blend(fraction: f32, a: f32, b: f32) -> f32 {
    (1.0 - fraction) * a + fraction * b
}

/// Grows a box about its centre.
fn expand([x1, y1, x2, y2]: [f32; 4], scale: f32) -> [f32; 4] {
    let (half_w, half_h) = ((x2 - x1) * 0.5 * scale, (y2 - y1) * 0.5 * scale);
    let (cx, cy) = ((x2 + x1) * 0.5, (y2 + y1) * 0.5);
    [cx - half_w, cy - half_h, cx + half_w, cy + half_h]
}

/// First image pixel that a box from `start` to `end` (both included) covers, and the source in the
/// padded mask of each one it covers.
fn taps(start: i64, end: i64, extent: usize, side: usize) -> (usize, Vec<BilinearTap>) {
    let size = end.saturating_sub(start).saturating_add(1).max(1);
    let first = start.clamp(0, extent as i64);
    let past = end.saturating_add(1).clamp(first, extent as i64);
    let tap = |at: i64| bilinear_tap(at.saturating_sub(start) as usize, side + 2, size as usize);
    (first as usize, (first..past).map(tap).collect())
}

impl PastedMask {
    /// Probabilities over the whole image, row-major.
    pub fn soft_image(&self) -> Vec<f32> {
        let [height, width] = self.image;
        let mut image = vec![0.0; height * width];
        for (row, values) in self.soft.chunks_exact(self.width.max(1)).enumerate() {
            image[(self.y + row) * width + self.x..][..self.width].copy_from_slice(values);
        }
        image
    }

    /// The pixels above `threshold`, over the whole image.
    pub fn bitmap(&self, threshold: f32) -> Bitmap {
        let [height, width] = self.image;
        let pixels = self.soft_image().iter().map(|&p| u8::from(p > threshold)).collect();
        Bitmap { height, width, pixels }
    }

    /// The runs of [`Self::bitmap`], without building it.
    pub fn runs(&self, threshold: f32) -> Vec<u32> {
        let [height, width] = self.image;
        let mut runs = RunWriter::default();
        runs.push(0, self.x * height);
        for x in 0..self.width {
            runs.push(0, self.y);
            for y in 0..self.height {
                runs.push(u8::from(self.soft[y * self.width + x] > threshold), 1);
            }
            runs.push(0, height - self.y - self.height);
        }
        runs.push(0, (width - self.x - self.width) * height);
        runs.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coco::encode_runs;
    use crate::philox::philox4x32;

    /// By hand: a 2x2 mask of ones in a box of 2 by 2 at (4, 4) grows to 4 by 4 about (5, 5); cut
    /// to 3..=7 it is 5 pixels wide, and the middle ones are 1.
    #[test]
    fn a_small_mask_by_hand() {
        let pasted = paste_mask(&[1.0; 4], 2, [4.0, 4.0, 6.0, 6.0], 10, 12);
        assert_eq!([pasted.x, pasted.y, pasted.width, pasted.height], [3, 3, 5, 5]);
        let middle = &pasted.soft[10..15];
        for (v, expected) in middle.iter().zip([0.0, 0.7, 1.0, 0.7, 0.0]) {
            assert!((v - expected).abs() < 1e-6, "{middle:?}");
        }
        // A cross: the corners are 0.7 * 0.7.
        assert_eq!(pasted.bitmap(0.5).area(), 5);
    }

    #[test]
    fn boxes_outside_leave_nothing_and_odd_ones_end() {
        let outside = [[-50.0, 0.0, -20.0, 9.0], [30.0, 30.0, 40.0, 40.0]];
        for bbox in outside {
            assert_eq!(paste_mask(&[1.0; 9], 3, bbox, 20, 20).bitmap(0.5).area(), 0);
        }
        paste_mask(&[1.0; 9], 3, [f32::NAN; 4], 20, 20);
        let inf = f32::INFINITY;
        paste_mask(&[1.0; 9], 3, [-inf, -inf, inf, inf], 20, 20);
    }

    #[test]
    fn runs_are_those_of_the_bitmap() {
        for seed in 0..200 {
            let word = |i: u32| philox4x32([seed, 8], [i, 0, 0, 0])[0];
            let unit = |i: u32| word(i) as f32 / u32::MAX as f32;
            let mask: Vec<f32> = (0..49).map(|i| unit(10 + i)).collect();
            let corner = [unit(0) * 30.0 - 10.0, unit(1) * 30.0 - 10.0];
            let bbox =
                [corner[0], corner[1], corner[0] + 20.0 * unit(2), corner[1] + 20.0 * unit(3)];
            let pasted = paste_mask(&mask, 7, bbox, 19, 23);
            assert_eq!(pasted.runs(0.5), encode_runs(&pasted.bitmap(0.5)), "{bbox:?}");
        }
    }
}
