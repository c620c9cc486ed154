//! Box arithmetic used by proposals and detections, on tensors `[.., 4]`.

use kernels::boxes::MAX_LOG_RATIO;

use crate::nodes::{FLOAT, Nodes, int, ints};

/// The parameters of box decoding.
pub(crate) struct Decoder<'a> {
    pub(crate) weights: &'a [f32; 4],
    pub(crate) plus_one: bool,
    /// Minimum width and height of a valid box.
    pub(crate) min_size: f32,
}

/// Score of an invalid box; valid scores are 0 or more.
pub(crate) const OUT: f32 = -1.0;
/// Threshold between [`OUT`] and valid scores; equal to none, so `>` and `>=` give the same result.
const NEARLY_OUT: f32 = -0.5;

impl Decoder<'_> {
    /// Boxes `[.., 4]` decoded from anchors and deltas, clipped to `bounds [.., 2]` (right,
    /// bottom), and a mask of the boxes that are large enough.
    pub(crate) fn decode(
        &self,
        n: &mut Nodes,
        anchors: &str,
        deltas: &str,
        bounds: &str,
    ) -> [String; 2] {
        let [low, high] = halves(n, anchors);
        let sides = extent(n, &high, &low, self.plus_one);
        let half = n.float(0.5);
        let to_centre = n.one("Mul", &[&half, &sides], &[]);
        let centre = n.one("Add", &[&low, &to_centre], &[]);

        let mut deltas = deltas.to_string();
        if *self.weights != [1.0; 4] {
            let weights = n.floats(&[4], self.weights);
            deltas = n.one("Div", &[&deltas, &weights], &[]);
        }
        let [shift, log_ratio] = halves(n, &deltas);
        let shift = n.one("Mul", &[&shift, &sides], &[]);
        let centre = n.one("Add", &[&shift, &centre], &[]);
        let most = n.float(MAX_LOG_RATIO);
        let log_ratio = n.one("Min", &[&log_ratio, &most], &[]);
        let ratio = n.one("Exp", &[&log_ratio], &[]);
        let sides = n.one("Mul", &[&ratio, &sides], &[]);
        let half = n.one("Mul", &[&half, &sides], &[]);
        let low = n.one("Sub", &[&centre, &half], &[]);
        let mut high = n.one("Add", &[&centre, &half], &[]);
        if self.plus_one {
            high = n.shifted("Sub", &high);
        }

        let zero = n.float(0.0);
        let [low, high] = [low, high].map(|corner| {
            let corner = n.one("Min", &[&corner, bounds], &[]);
            n.one("Max", &[&corner, &zero], &[])
        });
        let sides = extent(n, &high, &low, self.plus_one);
        let shorter = n.one("ReduceMin", &[&sides], &[ints("axes", &[-1]), int("keepdims", 0)]);
        let min_size = n.float(self.min_size);
        let is_large = n.one("GreaterOrEqual", &[&shorter, &min_size], &[]);
        [n.one("Concat", &[&low, &high], &[int("axis", -1)]), is_large]
    }
}

/// Splits boxes into their two corners, or deltas into offset and log-ratio.
pub(crate) fn halves(n: &mut Nodes, x: &str) -> [String; 2] {
    let two = n.list(&[2, 2]);
    n.many("Split", &[x, &two], &[int("axis", -1)])
}

/// Widths and heights of boxes with these corners.
pub(crate) fn extent(n: &mut Nodes, high: &str, low: &str, plus_one: bool) -> String {
    let extent = n.one("Sub", &[high, low], &[]);
    if plus_one { n.shifted("Add", &extent) } else { extent }
}

/// Right and bottom bounds `[N, 2]` of images, from sizes `[N, 2]` (height, width).
pub(crate) fn bounds(n: &mut Nodes, sizes: &str, plus_one: bool) -> String {
    let sizes = n.one("Cast", &[sizes], &[int("to", i64::from(FLOAT))]);
    let swapped = n.list(&[1, 0]);
    let bounds = n.one("Gather", &[&sizes, &swapped], &[int("axis", 1)]);
    if plus_one { n.shifted("Sub", &bounds) } else { bounds }
}

/// `scores` where `counts` is true, else [`OUT`].
pub(crate) fn counted(n: &mut Nodes, counts: &str, scores: &str) -> String {
    let out = n.float(OUT);
    n.one("Where", &[counts, scores, &out], &[])
}

/// True where scores are not [`OUT`].
pub(crate) fn is_in(n: &mut Nodes, scores: &str) -> String {
    let least = n.float(NEARLY_OUT);
    n.one("Greater", &[scores, &least], &[])
}

/// NMS on boxes `[B, M, 4]` with scores `[B, C, M]`: indices (b, c, m) of survivors, at most `most`
/// per (b, c). With `plus_one`, boxes are extended by one pixel, so that the operator computes
/// areas and overlaps of inclusive boxes.
pub(crate) fn nms(
    n: &mut Nodes,
    boxes: &str,
    scores: &str,
    most: usize,
    threshold: f32,
    plus_one: bool,
) -> String {
    let mut boxes = boxes.to_string();
    if plus_one {
        let one = n.floats(&[4], &[0.0, 0.0, 1.0, 1.0]);
        boxes = n.one("Add", &[&boxes, &one], &[]);
    }
    let most = n.list(&[most as i64]);
    let [threshold, least] = [threshold, NEARLY_OUT].map(|value| n.floats(&[1], &[value]));
    n.one("NonMaxSuppression", &[&boxes, scores, &most, &threshold, &least], &[])
}
