//! Areas, overlaps and transformations of single boxes.

/// `[x1, y1, x2, y2]` in pixels.
pub type Box4 = [f32; 4];

/// Height and width of an image in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageSize {
    /// Rows.
    pub height: i32,
    /// Columns.
    pub width: i32,
}

impl ImageSize {
    /// Reads a row `(height, width)` of a `[N, 2]` tensor.
    pub fn from_row(row: &[i32]) -> Self {
        Self { height: row[0], width: row[1] }
    }
}

/// Views f32 elements as boxes; their number must be a multiple of four.
pub fn as_boxes(values: &[f32]) -> &[Box4] {
    bytemuck::cast_slice(values)
}

/// Views f32 elements as boxes to write; their number must be a multiple of four.
pub fn as_boxes_mut(values: &mut [f32]) -> &mut [Box4] {
    bytemuck::cast_slice_mut(values)
}

/// The constant that inclusive boxes add to a difference of coordinates.
pub(crate) fn one(plus_one: bool) -> f32 {
    f32::from(u8::from(plus_one))
}

/// `1 / (1 + exp(-x))`.
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// Width of the box.
pub fn width(b: &Box4, plus_one: bool) -> f32 {
    b[2] - b[0] + one(plus_one)
}

/// Height of the box.
pub fn height(b: &Box4, plus_one: bool) -> f32 {
    b[3] - b[1] + one(plus_one)
}

/// Width times height; negative or zero for a degenerate box.
pub fn area(b: &Box4, plus_one: bool) -> f32 {
    width(b, plus_one) * height(b, plus_one)
}

/// Intersection and union areas of two boxes.
fn overlap(a: &Box4, b: &Box4, plus_one: bool) -> (f32, f32) {
    let one = one(plus_one);
    let w = (a[2].min(b[2]) - a[0].max(b[0]) + one).max(0.0);
    let h = (a[3].min(b[3]) - a[1].max(b[1]) + one).max(0.0);
    let shared = w * h;
    (shared, area(a, plus_one) + area(b, plus_one) - shared)
}

/// Intersection over union; 0 if the union has no area (torchvision gives NaN there).
pub fn iou(a: &Box4, b: &Box4, plus_one: bool) -> f32 {
    let (shared, union) = overlap(a, b, plus_one);
    if union > 0.0 { shared / union } else { 0.0 }
}

/// Generalized IoU (Rezatofighi et al., CVPR 2019): IoU minus the fraction of the enclosing box
/// that neither box covers; in -1..=1, and 0 for two identical points.
pub fn giou(a: &Box4, b: &Box4) -> f32 {
    let (shared, union) = overlap(a, b, false);
    let iou = if union > 0.0 { shared / union } else { 0.0 };
    let w = (a[2].max(b[2]) - a[0].min(b[0])).max(0.0);
    let h = (a[3].max(b[3]) - a[1].min(b[1])).max(0.0);
    let hull = w * h;
    if hull > 0.0 { iou - (hull - union) / hull } else { iou }
}

/// Clips the corners to the image: `0..=width` and `0..=height`; the upper limits are one less for
/// inclusive boxes.
pub fn clip(b: &Box4, size: ImageSize, plus_one: bool) -> Box4 {
    let right = size.width as f32 - one(plus_one);
    let bottom = size.height as f32 - one(plus_one);
    // max after min: an image of width 0 gives 0 instead of a panic.
    let x = |v: f32| v.min(right).max(0.0);
    let y = |v: f32| v.min(bottom).max(0.0);
    [x(b[0]), y(b[1]), x(b[2]), y(b[3])]
}

/// True if a side is shorter than `min_size`, or NaN.
pub fn is_small(b: &Box4, min_size: f32, plus_one: bool) -> bool {
    let keep = width(b, plus_one) >= min_size && height(b, plus_one) >= min_size;
    !keep
}

/// True if the box does not cross the image border (maskrcnn-benchmark's straddle threshold 0).
pub fn inside(b: &Box4, size: ImageSize) -> bool {
    b[0] >= 0.0 && b[1] >= 0.0 && b[2] < size.width as f32 && b[3] < size.height as f32
}
