//! Pasting a predicted mask into the image: the last step of evaluation.
//!
//! Two rules:
//! * `IntegerBox` matches torchvision's `paste_masks_in_image` with padding 1 (and
//!   maskrcnn-benchmark's `Masker`): the S x S mask gets a border of zeros, its box grows by
//!   (S+2)/S about its centre, corners are truncated to integers, and the padded mask is resized
//!   bilinearly to the box, both corners included. Pixels above the threshold are inside.
//! * `GridSample` matches detectron2's `paste_masks_in_image`: the mask spans the unchanged box and
//!   is sampled bilinearly at each pixel's centre, with zeros around the mask. Pixels at or above
//!   the threshold are inside.

use choices::PasteRule;

use crate::coco::{Bitmap, RunWriter};
use crate::resize::{BilinearTap, bilinear_tap};

/// The part of a pasted mask that is inside the image; the rest of the image is 0.
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
    rule: PasteRule,
}

/// Pastes `mask` (`side` x `side` probabilities) at `bbox` (x1, y1, x2, y2 in image pixels) into an
/// image of `height` and `width`. The result is empty for a box outside the image, and with
/// `GridSample` also for a zero-area box.
pub fn paste_mask(
    mask: &[f32],
    side: usize,
    bbox: [f32; 4],
    height: usize,
    width: usize,
    rule: PasteRule,
) -> PastedMask {
    assert_eq!(mask.len(), side * side, "a mask of {side} x {side}");
    let (columns, rows) = match rule {
        PasteRule::IntegerBox => {
            let [x1, y1, x2, y2] = expand(bbox, (side + 2) as f32 / side as f32).map(|v| v as i64);
            (taps(x1, x2, width, side), taps(y1, y2, height, side))
        }
        PasteRule::GridSample => {
            let [x1, y1, x2, y2] = bbox;
            (centre_taps(x1, x2, width, side), centre_taps(y1, y2, height, side))
        }
    };
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
    PastedMask { x, y, height: rows, width: columns, soft, image: [height, width], rule }
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

/// First image pixel that a box from `start` to `end` (both included) covers, and for each covered
/// pixel its source in the padded mask.
fn taps(start: i64, end: i64, extent: usize, side: usize) -> (usize, Vec<BilinearTap>) {
    let size = end.saturating_sub(start).saturating_add(1).max(1);
    let first = start.clamp(0, extent as i64);
    let past = end.saturating_add(1).clamp(first, extent as i64);
    let tap = |at: i64| bilinear_tap(at.saturating_sub(start) as usize, side + 2, size as usize);
    (first as usize, (first..past).map(tap).collect())
}

/// First image pixel that a mask from `start` to `end` can reach, and for each reachable pixel the
/// source of its centre in the padded mask. Computed in f32 in detectron2's order of operations.
fn centre_taps(start: f32, end: f32, extent: usize, side: usize) -> (usize, Vec<BilinearTap>) {
    let size = end - start;
    let has_extent = size > 0.0 && size.is_finite();
    if !has_extent {
        return (0, Vec::new());
    }
    // The mask reaches half a mask pixel beyond the box; the rest is a margin for rounding.
    let reach = size / side as f32 + 1.0;
    let first = ((start - reach).max(0.0) as usize).min(extent);
    let past = ((end + reach).max(0.0) as usize).clamp(first, extent);
    let tap = |at: usize| {
        let place = (at as f32 + 0.5 - start) / size * 2.0 - 1.0;
        let source = ((place + 1.0) * side as f32 - 1.0) / 2.0;
        if source > -1.0 && source < side as f32 {
            let low = source.floor();
            let padded = (low + 1.0) as usize;
            BilinearTap { low: padded, high: padded + 1, fraction: source - low }
        } else {
            BilinearTap { low: 0, high: 0, fraction: 0.0 }
        }
    };
    (first, (first..past).map(tap).collect())
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

    fn is_inside(&self, probability: f32, threshold: f32) -> bool {
        match self.rule {
            PasteRule::IntegerBox => probability > threshold,
            PasteRule::GridSample => probability >= threshold,
        }
    }

    /// The pixels inside the mask, over the whole image; pixels outside the pasted part are never
    /// inside.
    pub fn bitmap(&self, threshold: f32) -> Bitmap {
        let [height, width] = self.image;
        let mut pixels = vec![0; height * width];
        for (row, values) in self.soft.chunks_exact(self.width.max(1)).enumerate() {
            let line = &mut pixels[(self.y + row) * width + self.x..][..self.width];
            for (pixel, &p) in line.iter_mut().zip(values) {
                *pixel = u8::from(self.is_inside(p, threshold));
            }
        }
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
                let p = self.soft[y * self.width + x];
                runs.push(u8::from(self.is_inside(p, threshold)), 1);
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

    const RULES: [PasteRule; 2] = [PasteRule::IntegerBox, PasteRule::GridSample];

    /// Hand-computed: the mask [[0, 1], [0, 1]] over a box of 4 by 4 pixels from (3, 3). Centres
    /// are at -1/4, 1/4, 3/4 and 5/4 of a mask pixel, and a pixel beyond each edge is at 3/4 from
    /// the border.
    #[test]
    fn mask_paste_at_pixel_centres_matches_hand_computed_values() {
        let mask = [0.0, 1.0, 0.0, 1.0];
        let pasted = paste_mask(&mask, 2, [3.0, 3.0, 7.0, 7.0], 10, 12, PasteRule::GridSample);
        let row = &pasted.soft_image()[5 * 12..6 * 12];
        for (v, expected) in row[2..9].iter().zip([0.0, 0.0, 0.25, 0.75, 0.75, 0.25, 0.0]) {
            assert!((v - expected).abs() < 1e-6, "{row:?}");
        }
        // Values equal to the threshold are inside: two columns of the two middle rows; the outer
        // rows blend with the border.
        assert_eq!(pasted.bitmap(0.75).area(), 2 * 2);
        let whole = paste_mask(&[0.5; 9], 3, [2.0, 2.0, 8.0, 8.0], 9, 9, PasteRule::GridSample);
        let inner = whole.bitmap(0.5);
        assert_eq!(inner.area(), 4 * 4, "the outer pixels blend with the border");
    }

    #[test]
    fn box_outside_image_pastes_nothing_and_extreme_boxes_terminate() {
        let outside = [[-50.0, 0.0, -20.0, 9.0], [30.0, 30.0, 40.0, 40.0]];
        for rule in RULES {
            for bbox in outside {
                assert_eq!(paste_mask(&[1.0; 9], 3, bbox, 20, 20, rule).bitmap(0.5).area(), 0);
            }
            paste_mask(&[1.0; 9], 3, [f32::NAN; 4], 20, 20, rule);
            let inf = f32::INFINITY;
            paste_mask(&[1.0; 9], 3, [-inf, -inf, inf, inf], 20, 20, rule);
            let huge = f32::MAX / 4.0;
            paste_mask(&[1.0; 9], 3, [-huge, -huge, huge, huge], 20, 20, rule);
        }
        for bbox in [[5.0, 5.0, 5.0, 9.0], [5.0, 5.0, 9.0, 4.0]] {
            let pasted = paste_mask(&[1.0; 9], 3, bbox, 20, 20, PasteRule::GridSample);
            assert_eq!(pasted.bitmap(0.0).area(), 0, "{bbox:?}");
        }
    }
}
