//! The loss 1 - GIoU of two boxes and the decoding of a box from its deltas, with derivatives.
//!
//! Matches torchvision's `generalized_box_iou_loss` (eps 1e-7) and `BoxCoder.decode` (no +1, dw
//! and dh clamped at ln(1000/16)), computed in f64. Where a minimum or maximum ties, each side
//! gets half of the derivative, as in PyTorch.

/// Keeps the divisions finite for zero-area boxes.
const EPS: f64 = 1e-7;

/// Largest dw or dh: a box may grow 62.5 times.
fn max_log_scale() -> f64 {
    (1000.0f64 / 16.0).ln()
}

/// A value and its derivatives with respect to the predicted box's x1, y1, x2, y2.
#[derive(Debug, Clone, Copy)]
struct Dual {
    value: f64,
    slope: [f64; 4],
}

impl Dual {
    fn constant(value: f64) -> Self {
        Self { value, slope: [0.0; 4] }
    }

    fn variable(value: f64, idx: usize) -> Self {
        let mut slope = [0.0; 4];
        slope[idx] = 1.0;
        Self { value, slope }
    }

    /// A number with this value and the derivatives of `self * a + other * b`, where a and b are
    /// constants.
    fn combine(self, other: Self, value: f64, a: f64, b: f64) -> Self {
        let slope = std::array::from_fn(|i| a * self.slope[i] + b * other.slope[i]);
        Self { value, slope }
    }

    fn add(self, other: Self) -> Self {
        self.combine(other, self.value + other.value, 1.0, 1.0)
    }

    fn sub(self, other: Self) -> Self {
        self.combine(other, self.value - other.value, 1.0, -1.0)
    }

    fn mul(self, other: Self) -> Self {
        self.combine(other, self.value * other.value, other.value, self.value)
    }

    fn div(self, other: Self) -> Self {
        let value = self.value / other.value;
        self.combine(other, value, 1.0 / other.value, -value / other.value)
    }

    fn max(self, other: Self) -> Self {
        let share = match self.value.partial_cmp(&other.value) {
            Some(std::cmp::Ordering::Greater) => 1.0,
            Some(std::cmp::Ordering::Less) => 0.0,
            _ => 0.5,
        };
        self.combine(other, self.value.max(other.value), share, 1.0 - share)
    }

    fn min(self, other: Self) -> Self {
        let zero = Self::constant(0.0);
        zero.sub(zero.sub(self).max(zero.sub(other)))
    }
}

/// Loss `1 - GIoU` of boxes (x1, y1, x2, y2) and its derivatives with respect to the predicted one.
pub fn giou_loss(pred: [f32; 4], target: [f32; 4]) -> (f32, [f32; 4]) {
    let p: [Dual; 4] = std::array::from_fn(|i| Dual::variable(f64::from(pred[i]), i));
    let t = target.map(|v| Dual::constant(f64::from(v)));
    let area = |b: &[Dual; 4]| b[2].sub(b[0]).mul(b[3].sub(b[1]));
    let width = p[2].min(t[2]).sub(p[0].max(t[0]));
    let height = p[3].min(t[3]).sub(p[1].max(t[1]));
    let meet = width.value > 0.0 && height.value > 0.0;
    let intersection = if meet { width.mul(height) } else { Dual::constant(0.0) };
    let union = area(&p).add(area(&t)).sub(intersection);
    let hull = p[2].max(t[2]).sub(p[0].min(t[0])).mul(p[3].max(t[3]).sub(p[1].min(t[1])));
    let eps = Dual::constant(EPS);
    let iou = intersection.div(union.add(eps));
    let giou = iou.sub(hull.sub(union).div(hull.add(eps)));
    ((1.0 - giou.value) as f32, giou.slope.map(|s| -s as f32))
}

/// Applies `deltas` (dx, dy, dw, dh) to `roi`.
pub fn decode_box(deltas: [f32; 4], roi: [f32; 4], weights: [f32; 4]) -> [f32; 4] {
    let (centre, half, _) = decoded(deltas, roi, weights);
    [centre[0] - half[0], centre[1] - half[1], centre[0] + half[0], centre[1] + half[1]]
        .map(|v| v as f32)
}

/// The derivatives with respect to `deltas`, given `grad`, the derivatives with respect to the
/// corners of the decoded box. They are 0 for a clamped dw or dh.
pub fn decode_box_grad(
    deltas: [f32; 4],
    roi: [f32; 4],
    weights: [f32; 4],
    grad: [f32; 4],
) -> [f32; 4] {
    let (_, half, free) = decoded(deltas, roi, weights);
    let grad = grad.map(f64::from);
    let weights = weights.map(f64::from);
    let size = [f64::from(roi[2]) - f64::from(roi[0]), f64::from(roi[3]) - f64::from(roi[1])];
    std::array::from_fn(|i| {
        let axis = i % 2;
        let (low, high) = (grad[axis], grad[axis + 2]);
        let slope = match (i < 2, free[axis]) {
            (true, _) => (low + high) * size[axis],
            (false, true) => (high - low) * half[axis],
            (false, false) => 0.0,
        };
        (slope / weights[i]) as f32
    })
}

/// Centre, half of the size, and whether dw and dh are below their clamp.
fn decoded(deltas: [f32; 4], roi: [f32; 4], weights: [f32; 4]) -> ([f64; 2], [f64; 2], [bool; 2]) {
    let d: [f64; 4] = std::array::from_fn(|i| f64::from(deltas[i]) / f64::from(weights[i]));
    let b = roi.map(f64::from);
    let size = [b[2] - b[0], b[3] - b[1]];
    let centre = std::array::from_fn(|i| b[i] + 0.5 * size[i] + d[i] * size[i]);
    let half = std::array::from_fn(|i| 0.5 * d[i + 2].min(max_log_scale()).exp() * size[i]);
    (centre, half, [d[2] <= max_log_scale(), d[3] <= max_log_scale()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_deltas_keep_box_and_clamped_size_has_zero_gradient() {
        let roi = [3.0, 4.0, 13.0, 24.0];
        assert_eq!(decode_box([0.0; 4], roi, [10.0, 10.0, 5.0, 5.0]), roi);
        let grad = decode_box_grad([0.0, 0.0, 9.0, 0.0], roi, [1.0; 4], [-1.0, -1.0, 1.0, 1.0]);
        assert_eq!(grad[2], 0.0);
        assert_eq!(grad[3], 20.0);
    }
}
