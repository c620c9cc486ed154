//! The classes, as polygons.

/// Class names by category id, which begins at 1.
pub const CLASS_NAMES: [&str; 4] = ["square", "triangle", "circle", "cross"];

const CIRCLE_VERTICES: u32 = 24;
/// The arms of a cross are 0.3 of its side wide.
const ARM: (f64, f64) = (0.35, 0.65);

/// The polygon of class `class_idx` in the square of side `side` at `x`, `y`; x, y pairs.
///
/// Coordinates lie on eighths of a pixel, which are exact in f32, in f64 and as decimals: the file,
/// the store and the drawing then rasterise alike.
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
