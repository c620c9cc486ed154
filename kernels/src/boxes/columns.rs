//! Boxes stored as one array per coordinate, so that the IoUs of one box with many are computed in
//! vector registers.

use super::geometry::{Box4, area, one};

/// Coordinates and areas of a list of boxes, one array each.
#[derive(Debug, Clone)]
pub struct BoxColumns {
    x1: Vec<f32>,
    y1: Vec<f32>,
    x2: Vec<f32>,
    y2: Vec<f32>,
    area: Vec<f32>,
    plus_one: bool,
}

impl BoxColumns {
    /// Transposes `boxes`.
    pub fn new(boxes: &[Box4], plus_one: bool) -> Self {
        let column = |i: usize| boxes.iter().map(|b| b[i]).collect();
        Self {
            x1: column(0),
            y1: column(1),
            x2: column(2),
            y2: column(3),
            area: boxes.iter().map(|b| area(b, plus_one)).collect(),
            plus_one,
        }
    }

    /// Number of boxes.
    pub fn len(&self) -> usize {
        self.area.len()
    }

    /// True if there are no boxes.
    pub fn is_empty(&self) -> bool {
        self.area.is_empty()
    }

    /// Writes the IoU of `b` with the boxes from `start` on, as many as `out` holds; bit-identical
    /// to [`super::iou`].
    pub fn iou_into(&self, b: &Box4, start: usize, out: &mut [f32]) {
        let end = start + out.len();
        let (x1, y1) = (&self.x1[start..end], &self.y1[start..end]);
        let (x2, y2) = (&self.x2[start..end], &self.y2[start..end]);
        let areas = &self.area[start..end];
        let (one, own) = (one(self.plus_one), area(b, self.plus_one));
        for i in 0..out.len() {
            let w = positive(least(b[2], x2[i]) - most(b[0], x1[i]) + one);
            let h = positive(least(b[3], y2[i]) - most(b[1], y1[i]) + one);
            let shared = w * h;
            let union = own + areas[i] - shared;
            let iou = shared / union;
            out[i] = if union > 0.0 { iou } else { 0.0 };
        }
    }
}

// `f32::min` and `f32::max` treat NaN specially, which costs two more instructions each.
fn least(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

fn most(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

fn positive(a: f32) -> f32 {
    if a > 0.0 { a } else { 0.0 }
}
