//! The positions where a polygon's boundary crosses the centres of pixel columns, as in the COCO
//! API.
//!
//! COCO scales a polygon by five, rounds, walks each edge in unit steps of its longer axis, and
//! marks every step that crosses a column centre with the row where the inside begins or ends. Only
//! steps between samples 5x+2 and 5x+3 matter, and a sample depends only on its step, so this
//! module computes these steps directly (on steep edges by binary search): the results are equal,
//! and the cost does not grow with the polygon's size. Every column is crossed an even number of
//! times, so it can be filled independently.

/// Samples per pixel along each axis.
const SCALE: f64 = 5.0;

/// Calls `mark(column, row)` for each crossing of a column centre: from `row` on, pixels of the
/// column switch between outside and inside. Rows are in `0..=height`.
pub(super) fn crossings(
    polygon: &[f64],
    height: usize,
    width: usize,
    mut mark: impl FnMut(usize, usize),
) {
    let point = |i: usize| [polygon[2 * i], polygon[2 * i + 1]].map(sample_coordinate);
    let points = polygon.len() / 2;
    for i in 0..points {
        let edge = Edge::new(point(i), point((i + 1) % points));
        edge.crossings(width, |column, y| mark(column, row(y, height)));
    }
}

/// Scales and rounds as in COCO: adds one half and truncates toward zero; clamped to 32 bits.
fn sample_coordinate(v: f64) -> i64 {
    i64::from((SCALE * v + 0.5) as i32)
}

/// First row at or below a sample, within the image.
fn row(sample: i64, height: usize) -> usize {
    let y = (sample as f64 + 0.5) / SCALE - 0.5;
    y.clamp(0.0, height as f64).ceil() as usize
}

/// An edge, directed so that the coordinate of its longer axis increases.
struct Edge {
    start: [i64; 2],
    end: [i64; 2],
    /// Change of the shorter axis per step of the longer.
    slope: f64,
    steps: i64,
    steep: bool,
}

impl Edge {
    fn new(a: [i64; 2], b: [i64; 2]) -> Self {
        let (dx, dy) = ((b[0] - a[0]).abs(), (b[1] - a[1]).abs());
        let steep = dx < dy;
        let major = usize::from(steep);
        let (start, end) = if a[major] > b[major] { (b, a) } else { (a, b) };
        let steps = dx.max(dy);
        let slope = (end[1 - major] - start[1 - major]) as f64 / steps as f64;
        Self { start, end, slope, steps, steep }
    }

    /// Position on the shorter axis at a step.
    fn minor(&self, step: i64) -> i64 {
        let from = self.start[usize::from(!self.steep)] as f64;
        (from + self.slope * step as f64 + 0.5) as i64
    }

    /// Calls `mark(column, y)` where the edge passes from sample 5x+2 to 5x+3 or back; y is the
    /// smaller of the two samples' rows.
    fn crossings(&self, width: usize, mut mark: impl FnMut(usize, i64)) {
        if self.steps == 0 {
            return;
        }
        let ends = if self.steep {
            [self.minor(0), self.minor(self.steps)]
        } else {
            [self.start[0], self.end[0]]
        };
        let (low, high) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
        let first = (low + 2).div_euclid(5).max(0);
        let last = (high - 3).div_euclid(5).min(width as i64 - 1);
        for column in first..=last {
            let before = 5 * column + 2;
            let y = if self.steep {
                self.start[1] + self.step_past(before) - 1
            } else {
                let step = before - self.start[0];
                self.minor(step).min(self.minor(step + 1))
            };
            mark(column as usize, y);
        }
    }

    /// First step at which a steep edge has crossed `before + 0.5`.
    fn step_past(&self, before: i64) -> i64 {
        let past = |step: i64| {
            if self.slope > 0.0 { self.minor(step) > before } else { self.minor(step) <= before }
        };
        let (mut near, mut far) = (0, self.steps);
        while far - near > 1 {
            let middle = near + (far - near) / 2;
            if past(middle) {
                far = middle;
            } else {
                near = middle;
            }
        }
        far
    }
}
