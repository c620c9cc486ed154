//! Converts the outputs of the heads to detections.

use graph::Node;
use kernels::ops::detections::{Detections, DetectionsInputs};
use kernels::ops::mask_probabilities::MaskProbabilities;
use kernels::ops::mean_logits::MeanLogits;
use kernels::ops::refine_rois::{RefineRois, RefineRoisInputs};

use crate::boxes::{Decoder, OUT, bounds, counted, is_in, nms};
use crate::nodes::{Fill, INT64, Nodes, int, ints};
use crate::translation::{Found, Outputs, Translation, edges};

/// Computes scores and boxes of each RoI and class, then NMS per class and image, then the best
/// detections of each image.
pub(crate) fn detections(op: &Detections, t: &mut Translation<'_>, node: &Node) -> Outputs {
    let inputs = DetectionsInputs::of(&node.inputs);
    // The Program is for one image, so its number of RoIs is the maximum per image.
    let (most, classes) = (t.desc(*inputs.rois).dim(0), t.desc(*inputs.class_logits).dim(1) - 1);
    let is_shared = classes > 0 && t.desc(*inputs.box_deltas).dim(1) == 4;
    let [logits, deltas, rois, image_idx, sizes] = [
        inputs.class_logits,
        inputs.box_deltas,
        inputs.rois,
        inputs.image_idx,
        inputs.network_sizes,
    ]
    .map(|id| t.edge(*id));
    let (rois, image_idx, sizes) = (rois?, image_idx?, sizes?);
    let n = &mut t.nodes;
    let scores = n.one("Softmax", &[&logits?], &[int("axis", 1)]);
    let scores = foreground(n, &scores, classes);
    // Deltas are either class-agnostic or per class.
    let deltas = if is_shared {
        n.reshape(&deltas?, &[0, 1, 4])
    } else {
        let deltas = n.reshape(&deltas?, &[0, classes + 1, 4]);
        foreground(n, &deltas, classes)
    };
    let anchors = n.unsqueeze(&rois, 1);
    let bounds = bounds(n, &sizes, op.plus_one);
    let bounds = n.one("Gather", &[&bounds, &image_idx], &[int("axis", 0)]);
    let bounds = n.unsqueeze(&bounds, 1);
    let decoder = Decoder { weights: &op.weights, plus_one: op.plus_one, min_size: op.min_size };
    let [mut boxes, is_large] = decoder.decode(n, &anchors, &deltas, &bounds);
    if is_shared {
        let all = n.list(&[1, classes as i64, 4]);
        boxes = n.one("Expand", &[&boxes, &all], &[]);
    }
    let threshold = n.float(op.score_threshold);
    let passes = n.one("Greater", &[&scores, &threshold], &[]);
    let counts = n.one("And", &[&passes, &is_large], &[]);
    let scores = counted(n, &counts, &scores);

    let images = n.rows(&sizes);
    let places = ranks(n, &image_idx, &images);
    let cells = most * classes;
    let none = n.filled(&images, &[most, classes], Fill::Float(OUT));
    let scores = n.one("ScatterND", &[&none, &places, &scores], &[]);
    let none = n.filled(&images, &[most, classes, 4], Fill::Float(0.0));
    let boxes = n.one("ScatterND", &[&none, &places, &boxes], &[]);

    let survivors = survivors(n, op, &boxes, &scores, [most, classes]);
    let scores = n.reshape(&scores, &[0, cells]);
    let boxes = n.reshape(&boxes, &[0, cells, 4]);
    let surviving = n.one("GatherND", &[&scores, &survivors], &[]);
    let none = n.filled(&images, &[cells], Fill::Float(OUT));
    let scores = n.one("ScatterND", &[&none, &survivors, &surviving], &[]);
    let per_image = n.list(&[op.per_image.min(cells) as i64]);
    let [scores, cells] = n.many("TopK", &[&scores, &per_image], &[int("axis", 1)]);

    let is_in = is_in(n, &scores);
    let counts = n.counts(&is_in);
    let places = n.places(&is_in);
    let [scores, cells] = [scores, cells].map(|table| n.one("GatherND", &[&table, &places], &[]));
    let image_idx = n.column(&places, 0);
    let of_cell = n.columns(&image_idx, &cells);
    let boxes = n.one("GatherND", &[&boxes, &of_cell], &[]);
    let classes = n.int(classes as i64);
    let class = n.one("Mod", &[&cells, &classes], &[]);
    let one = n.int(1);
    let labels = n.one("Add", &[&class, &one], &[]);
    t.found = Some(Found { places, images, per_image: op.per_image });
    Ok(edges([boxes, scores, labels, image_idx, counts]))
}

/// The mean of the cascade stages' probabilities, as logits.
pub(crate) fn mean_logits(_: &MeanLogits, t: &mut Translation<'_>, node: &Node) -> Outputs {
    let stages = node.inputs.iter().map(|logits| t.edge(*logits));
    let stages = stages.collect::<Result<Vec<_>, _>>()?;
    let n = &mut t.nodes;
    let softmax = |logits: &String| n.one("Softmax", &[logits], &[int("axis", 1)]);
    let all: Vec<String> = stages.iter().map(softmax).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let mean = n.one("Mean", &all, &[]);
    Ok(edges([n.one("Log", &[&mean], &[])]))
}

/// The RoIs of the next cascade stage.
pub(crate) fn refine_rois(op: &RefineRois, t: &mut Translation<'_>, node: &Node) -> Outputs {
    let inputs = RefineRoisInputs::of(&node.inputs);
    let [rois, deltas, image_idx, sizes] =
        [inputs.rois, inputs.deltas, inputs.image_idx, inputs.network_sizes].map(|id| t.edge(*id));
    let (rois, deltas, image_idx, sizes) = (rois?, deltas?, image_idx?, sizes?);
    let n = &mut t.nodes;
    let bounds = bounds(n, &sizes, op.plus_one);
    let bounds = n.one("Gather", &[&bounds, &image_idx], &[int("axis", 0)]);
    let decoder = Decoder { weights: &op.weights, plus_one: op.plus_one, min_size: 0.0 };
    let [boxes, _] = decoder.decode(n, &rois, &deltas, &bounds);
    Ok(edges([boxes]))
}

/// The classes of `[R, K+1, ..]` without the background, which is first.
fn foreground(n: &mut Nodes, x: &str, classes: usize) -> String {
    let [first, end, axis] = [1, classes as i64 + 1, 1].map(|value| n.list(&[value]));
    n.one("Slice", &[x, &first, &end, &axis], &[])
}

/// For each element of a list that is sorted by image: its image, and its position within the
/// image, `[R, 2]`.
fn ranks(n: &mut Nodes, image_idx: &str, images: &str) -> String {
    let each = n.range(images);
    let (own, each) = (n.unsqueeze(image_idx, 1), n.unsqueeze(&each, 0));
    let own = n.one("Equal", &[&own, &each], &[]);
    let own = n.one("Cast", &[&own], &[int("to", i64::from(INT64))]);
    let [axes, axis] = [n.list(&[0]), n.int(0)];
    let counts = n.one("ReduceSum", &[&own, &axes], &[int("keepdims", 0)]);
    let firsts = n.one("CumSum", &[&counts, &axis], &[int("exclusive", 1)]);
    let first = n.one("Gather", &[&firsts, image_idx], &[int("axis", 0)]);
    let rows = n.rows(image_idx);
    let at = n.range(&rows);
    let rank = n.one("Sub", &[&at, &first], &[]);
    n.columns(image_idx, &rank)
}

/// NMS per image and class. Returns survivors as rows (image, RoI * K + class).
fn survivors(
    n: &mut Nodes,
    op: &Detections,
    boxes: &str,
    scores: &str,
    [most, classes]: [usize; 2],
) -> String {
    let boxes = n.one("Transpose", &[boxes], &[ints("perm", &[0, 2, 1, 3])]);
    let scores = n.one("Transpose", &[scores], &[ints("perm", &[0, 2, 1])]);
    let most = most as i64;
    let [boxes_shape, scores_shape] = [[-1, most, 4], [-1, 1, most]].map(|shape| n.list(&shape));
    let boxes = n.one("Reshape", &[&boxes, &boxes_shape], &[]);
    let scores = n.one("Reshape", &[&scores, &scores_shape], &[]);
    let kept = nms(n, &boxes, &scores, op.per_image, op.nms_threshold, op.plus_one);
    let [batch, roi] = [0, 2].map(|i| n.column(&kept, i));
    let classes = n.int(classes as i64);
    let image = n.one("Div", &[&batch, &classes], &[]);
    let class = n.one("Mod", &[&batch, &classes], &[]);
    let cell = n.one("Mul", &[&roi, &classes], &[]);
    let cell = n.one("Add", &[&cell, &class], &[]);
    n.columns(&image, &cell)
}

/// The sigmoid of each detection's mask logits.
pub(crate) fn mask_probabilities(
    _: &MaskProbabilities,
    t: &mut Translation<'_>,
    node: &Node,
) -> Outputs {
    let logits = t.edge(node.inputs[0])?;
    Ok(edges([t.nodes.one("Sigmoid", &[&logits], &[])]))
}
