//! Run-length encoded masks, the form in which COCO stores, exchanges and compares masks.
//!
//! `hotcoco` does the computation; this file defines onegraph's type, and converts to onegraph's
//! row-major bitmaps (COCO's are column-major).

use hotcoco::mask;
use serde::{Deserialize, Serialize};

use super::error::ScoreError;

/// A binary mask as runs in column-major order: background, foreground, background, ...
///
/// # Units
/// `height`, `width` and every count are pixels. The counts sum to at most `height * width`; as in
/// pycocotools, the remaining pixels are background.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rle {
    /// Rows of the mask.
    pub height: u32,
    /// Columns of the mask.
    pub width: u32,
    /// Run lengths; the first run is background, with length 0 if the first pixel is foreground.
    pub counts: Vec<u32>,
}

impl Rle {
    /// Fills polygons like COCO: rasterises each polygon, and returns the union.
    ///
    /// # Shapes
    /// Each polygon is flat: `x0, y0, x1, y1, ...` in pixels of the `height` x `width` image.
    ///
    /// # Errors
    /// [`ScoreError::Mask`] for an odd number of coordinates, a coordinate that is not finite, or
    /// an image of more than `u32::MAX` pixels. A polygon with fewer than 3 points fills nothing.
    pub fn from_polygons(
        height: u32,
        width: u32,
        polygons: &[Vec<f64>],
    ) -> Result<Self, ScoreError> {
        let fail = |reason| ScoreError::Mask { height, width, reason };
        for (i, polygon) in polygons.iter().enumerate() {
            check_polygon(polygon).map_err(|why| fail(format!("polygon {i} {why}")))?;
        }
        let rle = mask::fr_polys(polygons, height, width).map_err(|e| fail(e.to_string()))?;
        Ok(rle.into())
    }

    /// Reads COCO's compressed string of counts.
    ///
    /// # Errors
    /// [`ScoreError::Mask`] for an invalid character, or runs longer than the mask.
    pub fn from_leb(height: u32, width: u32, counts: &str) -> Result<Self, ScoreError> {
        let fail = |e: hotcoco::Error| ScoreError::Mask { height, width, reason: e.to_string() };
        Ok(mask::rle_from_string(counts, height, width).map_err(fail)?.into())
    }

    /// The counts as COCO's compressed string, as pycocotools writes it.
    #[must_use]
    pub fn to_leb(&self) -> String {
        mask::rle_to_string(&self.to_hotcoco())
    }

    /// Number of foreground pixels.
    #[must_use]
    pub fn area(&self) -> u64 {
        self.counts.iter().skip(1).step_by(2).map(|&run| u64::from(run)).sum()
    }

    /// The tight box `x, y, width, height` around the foreground, in pixels; zeros if the mask is
    /// empty.
    #[must_use]
    pub fn to_bbox(&self) -> [f64; 4] {
        mask::to_bbox(&self.to_hotcoco())
    }

    /// The row-major bitmap, with values 0 and 1.
    ///
    /// # Shapes
    /// `height * width` bytes. Runs beyond the mask are truncated.
    #[must_use]
    pub fn decode(&self) -> Vec<u8> {
        let (height, width) = (self.height as usize, self.width as usize);
        let mut bitmap = vec![0; height * width];
        let mut at = 0_usize;
        for (i, &run) in self.counts.iter().enumerate() {
            let end = at.saturating_add(run as usize).min(bitmap.len());
            if i % 2 == 1 {
                for pixel in at..end {
                    bitmap[(pixel % height) * width + pixel / height] = 1;
                }
            }
            at = end;
        }
        bitmap
    }

    /// Union (or intersection) of masks of equal size; a mask of 0 x 0 pixels for an empty list.
    ///
    /// # Errors
    /// [`ScoreError::Mask`] when the sizes differ.
    pub fn merge(masks: &[Rle], intersect: bool) -> Result<Self, ScoreError> {
        let (height, width) = masks.first().map_or((0, 0), |m| (m.height, m.width));
        let owned: Vec<hotcoco::Rle> = masks.iter().map(Rle::to_hotcoco).collect();
        let fail = |e: hotcoco::Error| ScoreError::Mask { height, width, reason: e.to_string() };
        Ok(mask::merge(&owned, intersect).map_err(fail)?.into())
    }

    /// The reason why the runs are not a mask of this size; `None` if they are.
    pub(super) fn fault(&self) -> Option<String> {
        mask::check_counts(&self.counts, self.height, self.width).err().map(|e| e.to_string())
    }

    fn to_hotcoco(&self) -> hotcoco::Rle {
        hotcoco::Rle { h: self.height, w: self.width, counts: self.counts.clone() }
    }
}

impl From<hotcoco::Rle> for Rle {
    fn from(rle: hotcoco::Rle) -> Self {
        Rle { height: rle.h, width: rle.w, counts: rle.counts }
    }
}

/// Runs of a bitmap; any non-zero byte is foreground.
///
/// # Shapes
/// `row_major` has `height * width` bytes.
///
/// # Panics
/// If `row_major` has a different length.
#[must_use]
pub fn encode_mask(height: u32, width: u32, row_major: &[u8]) -> Rle {
    let (rows, columns) = (height as usize, width as usize);
    assert_eq!(row_major.len(), rows * columns, "encode_mask: bitmap is not height * width bytes");
    // COCO's order is column-major, but the bitmap is row-major. Only the bounding window of the
    // foreground is traversed by columns: a pasted mask is usually a small part of its image.
    let Some(window) = Window::around(columns, row_major) else {
        return Rle { height, width, counts: vec![height * width] };
    };
    let mut counts = Vec::with_capacity(2 * window.columns.len() + 1);
    let (mut at, mut start, mut foreground) = (0, 0, false);
    for x in window.columns.clone() {
        // Background in the rows above the window.
        if foreground && window.rows.start > 0 {
            let top = x * rows;
            counts.push((top - start) as u32);
            (start, foreground) = (top, false);
        }
        for y in window.rows.clone() {
            at = x * rows + y;
            if (row_major[y * columns + x] != 0) != foreground {
                counts.push((at - start) as u32);
                (start, foreground) = (at, !foreground);
            }
        }
        at += 1;
        if foreground && window.rows.end < rows {
            counts.push((at - start) as u32);
            (start, foreground) = (at, false);
        }
    }
    let end = rows * columns;
    if foreground && at < end {
        counts.push((at - start) as u32);
        start = at;
    }
    counts.push((end - start) as u32);
    Rle { height, width, counts }
}

/// The rows and columns that bound the foreground.
struct Window {
    rows: std::ops::Range<usize>,
    columns: std::ops::Range<usize>,
}

impl Window {
    fn around(columns: usize, row_major: &[u8]) -> Option<Self> {
        let mut found: Option<Window> = None;
        for (y, row) in row_major.chunks_exact(columns.max(1)).enumerate() {
            let Some(first) = row.iter().position(|&byte| byte != 0) else { continue };
            let last = row.iter().rposition(|&byte| byte != 0).unwrap_or(first);
            let window = found.get_or_insert(Window { rows: y..y, columns: first..last + 1 });
            window.rows.end = y + 1;
            window.columns.start = window.columns.start.min(first);
            window.columns.end = window.columns.end.max(last + 1);
        }
        found
    }
}

/// IoU of every detection with every ground truth mask, `[detections][ground truths]`. For a crowd,
/// the intersection is divided by the detection's area instead of the union; -1 if the masks have
/// different sizes.
///
/// # Panics
/// If `crowd` does not have one flag per ground truth.
#[must_use]
pub fn mask_iou(detections: &[Rle], ground_truths: &[Rle], crowd: &[bool]) -> Vec<Vec<f64>> {
    assert_eq!(ground_truths.len(), crowd.len(), "mask_iou: one crowd flag a ground truth");
    let owned = |masks: &[Rle]| masks.iter().map(Rle::to_hotcoco).collect::<Vec<_>>();
    mask::iou(&owned(detections), &owned(ground_truths), crowd)
}

/// Like [`mask_iou`], for boxes `x, y, width, height`.
///
/// # Panics
/// If `crowd` does not have one flag per ground truth.
#[must_use]
pub fn bbox_iou(
    detections: &[[f64; 4]],
    ground_truths: &[[f64; 4]],
    crowd: &[bool],
) -> Vec<Vec<f64>> {
    assert_eq!(ground_truths.len(), crowd.len(), "bbox_iou: one crowd flag a ground truth");
    mask::bbox_iou(detections, ground_truths, crowd)
}

/// Checks that a flat polygon can be filled. The error is printed after the polygon.
pub(super) fn check_polygon(polygon: &[f64]) -> Result<(), String> {
    if !polygon.len().is_multiple_of(2) {
        return Err(format!("has {} coordinates, an odd number", polygon.len()));
    }
    match polygon.iter().find(|c| !c.is_finite()) {
        Some(c) => Err(format!("has the coordinate {c}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An independent implementation of COCO's definition, pixel by pixel.
    fn encode_plain(height: usize, width: usize, bitmap: &[u8]) -> Vec<u32> {
        let (mut counts, mut value) = (vec![0], false);
        for x in 0..width {
            for y in 0..height {
                if (bitmap[y * width + x] != 0) != value {
                    value = !value;
                    counts.push(0);
                }
                if let Some(last) = counts.last_mut() {
                    *last += 1;
                }
            }
        }
        counts
    }

    #[test]
    fn rle_encode_matches_definition_and_round_trips() {
        let mut state = 7_u64;
        for case in 0..400_u32 {
            let (h, w) = (1 + case % 7, 1 + (case / 7) % 11);
            let density = [0, 1, 30, 128, 255, 256][case as usize % 6];
            let bitmap: Vec<u8> = (0..h * w)
                .map(|_| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963);
                    u8::from((state >> 56) < density) * 255
                })
                .collect();
            let rle = encode_mask(h, w, &bitmap);
            assert_eq!(rle.counts, encode_plain(h as usize, w as usize, &bitmap), "{h}x{w}");
            let ones: Vec<u8> = bitmap.iter().map(|&b| u8::from(b != 0)).collect();
            assert_eq!(rle.decode(), ones);
            assert_eq!(rle.area(), ones.iter().map(|&b| u64::from(b)).sum::<u64>());
            assert_eq!(Rle::from_leb(h, w, &rle.to_leb()).expect("own string"), rle);
        }
    }

    #[test]
    fn empty_bitmap_has_one_run() {
        assert_eq!(encode_mask(3, 4, &[0; 12]).counts, [12]);
        assert_eq!(encode_mask(0, 4, &[]).counts, [0]);
        assert_eq!(encode_mask(3, 0, &[]).counts, [0]);
    }

    #[test]
    fn rle_of_drawn_mask_matches_hand_computed_counts() {
        // . X X      column-major: . . | X . | X X
        // . . X
        let rle = encode_mask(2, 3, &[0, 1, 1, 0, 0, 1]);
        assert_eq!(rle.counts, [2, 1, 1, 2]);
        assert_eq!((rle.area(), rle.to_bbox()), (3, [1.0, 0.0, 2.0, 2.0]));
    }

    #[test]
    fn rle_merge_is_pixelwise() {
        let bitmaps = [[1, 1, 0, 1, 1, 0], [0, 1, 1, 1, 1, 1], [1, 1, 1, 0, 1, 0]];
        let masks: Vec<Rle> = bitmaps.iter().map(|b| encode_mask(2, 3, b)).collect();
        let merged = |intersect| Rle::merge(&masks, intersect).expect("one size").decode();
        assert_eq!(merged(false), [1, 1, 1, 1, 1, 1]);
        assert_eq!(merged(true), [0, 1, 0, 0, 1, 0]);
    }

    #[test]
    fn invalid_rle_is_reported() {
        let odd = Rle::from_polygons(4, 4, &[vec![0.0; 6], vec![0.0; 7]]).expect_err("odd");
        assert_eq!(
            odd.to_string(),
            "mask of 4x4 (height x width): polygon 1 has 7 coordinates, an odd number"
        );
        assert!(Rle::from_polygons(4, 4, &[vec![f64::NAN; 6]]).is_err());
        assert!(Rle::from_leb(2, 2, "99999").is_err());
        let small = Rle { height: 1, width: 1, counts: vec![1] };
        let large = Rle { height: 2, width: 1, counts: vec![2] };
        assert!(Rle::merge(&[small, large], false).is_err());
    }
}
