//! The bounding box of the visible part of a mask.

use dali::store::Segmentation;

/// Bounding box, in source pixels, of the part of a mask inside a window (x1, y1, x2, y2); `None`
/// if it has no area. `height` is the height of the source.
#[must_use]
pub fn extent(mask: &Segmentation<'_>, window: [f32; 4], height: usize) -> Option<[f32; 4]> {
    let mut seen = Seen { window, corners: [f32::MAX, f32::MAX, f32::MIN, f32::MIN] };
    match mask {
        Segmentation::Polygons(rings) => rings.iter().for_each(|ring| seen.add_ring(ring)),
        Segmentation::Runs(runs) => seen.add_runs(runs, height),
    }
    let [x1, y1, x2, y2] = seen.corners;
    (x2 > x1 && y2 > y1).then_some(seen.corners)
}

struct Seen {
    window: [f32; 4],
    corners: [f32; 4],
}

impl Seen {
    fn add(&mut self, point: [f32; 2]) {
        for (i, v) in point.into_iter().enumerate() {
            let v = v.clamp(self.window[i], self.window[i + 2]);
            self.corners[i] = self.corners[i].min(v);
            self.corners[i + 2] = self.corners[i + 2].max(v);
        }
    }

    /// Adds a polygon. Its extremes within the window are end points of clipped edges, or corners
    /// of the window that are inside the polygon.
    fn add_ring(&mut self, ring: &[f32]) {
        let points: Vec<[f32; 2]> = ring.chunks_exact(2).map(|p| [p[0], p[1]]).collect();
        let edges = || points.iter().copied().zip(points.iter().copied().cycle().skip(1));
        edges().for_each(|(from, to)| self.add_edge(from, to));
        let [x1, y1, x2, y2] = self.window;
        for corner in [[x1, y1], [x2, y1], [x1, y2], [x2, y2]] {
            let crosses = |(a, b): &([f32; 2], [f32; 2])| {
                let share = (corner[1] - a[1]) / (b[1] - a[1]);
                (a[1] > corner[1]) != (b[1] > corner[1]) && corner[0] < a[0] + share * (b[0] - a[0])
            };
            if edges().filter(crosses).count() % 2 == 1 {
                self.add(corner);
            }
        }
    }

    /// Adds the part of an edge inside the window (Liang-Barsky clipping).
    fn add_edge(&mut self, from: [f32; 2], to: [f32; 2]) {
        let (mut first, mut last) = (0.0_f32, 1.0_f32);
        for i in 0..2 {
            let (low, high, way) = (self.window[i], self.window[i + 2], to[i] - from[i]);
            if way == 0.0 {
                if from[i] < low || from[i] > high {
                    return;
                }
                continue;
            }
            let [a, b] = [low, high].map(|end| (end - from[i]) / way);
            (first, last) = (first.max(a.min(b)), last.min(a.max(b)));
        }
        if first > last {
            return;
        }
        for share in [first, last] {
            self.add(match share {
                0.0 => from,
                1.0 => to,
                _ => [0, 1].map(|i| from[i] + share * (to[i] - from[i])),
            });
        }
    }

    fn add_runs(&mut self, runs: &[u32], height: usize) {
        let [x1, y1, x2, y2] = self.window;
        let mut start = 0;
        for (i, &len) in runs.iter().enumerate() {
            let end = start + len as usize;
            let columns = if i % 2 == 1 { start / height..end.div_ceil(height) } else { 0..0 };
            for x in columns {
                let rows = [start, end].map(|at| at.clamp(x * height, (x + 1) * height));
                let [low, high] = rows.map(|at| (at - x * height) as f32);
                let x = x as f32;
                if low.max(y1) < high.min(y2) && x.max(x1) < (x + 1.0).min(x2) {
                    self.add([x, low]);
                    self.add([x + 1.0, high]);
                }
            }
            start = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_ring(ring: &[f32], window: [f32; 4]) -> Option<[f32; 4]> {
        extent(&Segmentation::Polygons(vec![ring]), window, 100)
    }

    #[test]
    fn polygon_extent_matches_hand_computed_values() {
        let triangle = [0.0, 0.0, 8.0, 0.0, 0.0, 8.0];
        assert_eq!(of_ring(&triangle, [-9.0, -9.0, 9.0, 9.0]), Some([0.0, 0.0, 8.0, 8.0]));
        // The hypotenuse intersects the right and the lower side of the window.
        assert_eq!(of_ring(&triangle, [2.0, 2.0, 5.0, 9.0]), Some([2.0, 2.0, 5.0, 6.0]));
        assert_eq!(of_ring(&triangle, [1.0, 1.0, 2.0, 2.0]), Some([1.0, 1.0, 2.0, 2.0]), "inside");
        assert_eq!(of_ring(&triangle, [5.0, 5.0, 9.0, 9.0]), None, "in its box alone");
    }

    /// A U-shaped polygon and a window that cuts its arms. Polygon clipping would connect the arms
    /// along the border of the window.
    #[test]
    fn extent_of_u_shape_excludes_its_gap() {
        let u = [0.0, 0.0, 2.0, 0.0, 2.0, 6.0, 8.0, 6.0, 8.0, 0.0, 10.0, 0.0, 10.0, 8.0, 0.0, 8.0];
        assert_eq!(of_ring(&u, [3.0, -1.0, 12.0, 4.0]), Some([8.0, 0.0, 10.0, 4.0]));
    }

    #[test]
    fn rle_extent_matches_hand_computed_values() {
        // The image has four rows. The mask covers rows 2 and 3 of column 1, all of column 2, and
        // row 0 of column 3.
        let runs = Segmentation::Runs(&[6, 7, 3]);
        let of = |window| extent(&runs, window, 4);
        assert_eq!(of([0.0, 0.0, 4.0, 4.0]), Some([1.0, 0.0, 4.0, 4.0]));
        assert_eq!(of([0.0, 0.0, 2.0, 4.0]), Some([1.0, 2.0, 2.0, 4.0]));
        assert_eq!(of([2.5, 1.0, 4.0, 3.5]), Some([2.5, 1.0, 3.0, 3.5]));
        assert_eq!(of([0.0, 0.0, 2.0, 2.0]), None);
    }
}
