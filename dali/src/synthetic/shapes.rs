//! The classes of shapes, and their polygons.

/// Class names by category id, which starts at 1.
pub const CLASS_NAMES: [&str; 4] = ["square", "triangle", "circle", "cross"];

/// Names of the keypoints of each object.
pub const KEYPOINT_NAMES: [&str; NUM_KEYPOINTS] =
    ["top", "left_side", "right_side", "bottom", "center"];
pub(super) const NUM_KEYPOINTS: usize = 5;
/// Lines from the centre to each other keypoint, counted from 1 as in COCO.
pub(super) const SKELETON: [[u32; 2]; NUM_KEYPOINTS - 1] = [[1, 5], [2, 5], [3, 5], [4, 5]];

const CIRCLE_VERTICES: u32 = 24;
/// The arms of a cross have a width of 0.3 sides.
const ARM: (f64, f64) = (0.35, 0.65);

/// The polygon of class `class_idx`, as x, y pairs, in the square with side `side` and corner `x`,
/// `y`.
///
/// Coordinates are multiples of an eighth of a pixel, which are exact in f32, in f64 and as
/// decimals, so that the polygons in the file, the store and the drawing are rasterized
/// identically.
pub(super) fn polygon(class_idx: usize, x: f64, y: f64, side: f64) -> Vec<f64> {
    let (a, b) = ARM;
    let unit: Vec<(f64, f64)> = match CLASS_NAMES[class_idx] {
        "square" => vec![(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)],
        "triangle" => vec![(0.5, 0.0), (1.0, 1.0), (0.0, 1.0)],
        "circle" => (0..CIRCLE_VERTICES)
            .map(|vertex| {
                let turn = std::f64::consts::TAU * f64::from(vertex) / f64::from(CIRCLE_VERTICES);
                (0.5 + 0.5 * turn.cos(), 0.5 + 0.5 * turn.sin())
            })
            .collect(),
        _ => vec![
            (a, 0.0),
            (b, 0.0),
            (b, a),
            (1.0, a),
            (1.0, b),
            (b, b),
            (b, 1.0),
            (a, 1.0),
            (a, b),
            (0.0, b),
            (0.0, a),
            (a, a),
        ],
    };
    let eighths = |value: f64| (value * 8.0).round() / 8.0;
    unit.into_iter().flat_map(|(u, v)| [eighths(x + u * side), eighths(y + v * side)]).collect()
}

/// The keypoints x, y of an outline: its topmost, leftmost, rightmost and bottommost vertex (or the
/// mean of equally extreme vertices), and the centre of its box. They are fractions of a pixel that
/// are exact in f32.
pub(super) fn keypoints(outline: &[f64]) -> [[f64; 2]; NUM_KEYPOINTS] {
    let (vertices, _) = outline.as_chunks::<2>();
    let last = |axis: usize, sign: f64| {
        let most = vertices.iter().map(|v| sign * v[axis]).fold(f64::NEG_INFINITY, f64::max);
        let tied = || vertices.iter().filter(|v| sign * v[axis] == most);
        [0, 1].map(|axis| tied().map(|v| v[axis]).sum::<f64>() / tied().count() as f64)
    };
    let [top, left, right, bottom] = [last(1, -1.0), last(0, -1.0), last(0, 1.0), last(1, 1.0)];
    let center = [(left[0] + right[0]) / 2.0, (top[1] + bottom[1]) / 2.0];
    [top, left, right, bottom, center]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keypoints_are_outline_extremes_and_centre() {
        let of = |class_idx| keypoints(&polygon(class_idx, 10.0, 20.0, 8.0));
        let ends = [[14.0, 20.0], [10.0, 24.0], [18.0, 24.0], [14.0, 28.0], [14.0, 24.0]];
        for (class_idx, name) in CLASS_NAMES.iter().enumerate() {
            match *name {
                "triangle" => {
                    let mut ends = ends;
                    (ends[1], ends[2]) = ([10.0, 28.0], [18.0, 28.0]);
                    assert_eq!(of(class_idx), ends);
                }
                _ => assert_eq!(of(class_idx), ends, "{name}"),
            }
        }
        assert!(SKELETON.iter().flatten().all(|end| (1..=NUM_KEYPOINTS as u32).contains(end)));
    }
}
