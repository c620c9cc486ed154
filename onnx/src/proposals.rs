//! Converts the RPN's maps to a list of RoIs.

use graph::{Node, TensorId};
use kernels::cpu::HostTensor;
use kernels::ops::decode_proposals::DecodeProposals;
use kernels::ops::flatten_rois::FlattenRois;
use kernels::ops::nms_proposals::{NmsProposals, NmsProposalsInputs, ProposalScope};
use kernels::ops::top_k_per_level::TopKPerLevel;
use kernels::{Role, TensorDesc};

use crate::boxes::{Decoder, OUT, bounds, counted, is_in, nms};
use crate::nodes::{Fill, int, ints};
use crate::translation::{OnnxError, Outputs, Translation, Value, edges};

/// Rearranges a map with `A * values` channels into one row per anchor: `[N, h*w*A, values]`, or
/// `[N, h*w*A]` for one value.
fn by_anchor(t: &mut Translation<'_>, map: TensorId, values: usize) -> Result<String, OnnxError> {
    let anchors: usize = t.desc(map).shape[1..].iter().product::<usize>() / values;
    let map = t.edge(map)?;
    let last = t.nodes.one("Transpose", &[&map], &[ints("perm", &[0, 2, 3, 1])]);
    let shape = [0, anchors, values];
    Ok(t.nodes.reshape(&last, if values == 1 { &shape[..2] } else { &shape }))
}

/// The anchors with the highest logits of each level. Like onegraph, ONNX runtimes order equal
/// logits by index.
pub(crate) fn top_k_per_level(op: &TopKPerLevel, t: &mut Translation<'_>, node: &Node) -> Outputs {
    let (mut kept, mut levels, mut first) = (Vec::new(), Vec::new(), 0);
    for (level, map) in node.inputs.iter().enumerate() {
        let anchors: usize = t.desc(*map).shape[1..].iter().product();
        let logits = by_anchor(t, *map, 1)?;
        let n = &mut t.nodes;
        let k = op.k.min(anchors);
        let most = n.list(&[k as i64]);
        let [_, idx] = n.many("TopK", &[&logits, &most], &[int("axis", 1)]);
        let before = n.int(first);
        kept.push(n.one("Add", &[&idx, &before], &[]));
        levels.extend(vec![level as i32; k]);
        first += anchors as i64;
    }
    let kept: Vec<&str> = kept.iter().map(String::as_str).collect();
    let idx = t.nodes.one("Concat", &kept, &[int("axis", 1)]);
    let levels = HostTensor::i32(TensorDesc::new(Role::Index, &[levels.len()]), levels);
    Ok(vec![Value::Edge(idx), Value::Constant(levels)])
}

/// Boxes and scores of the anchors `idx`.
pub(crate) fn decode_proposals(
    op: &DecodeProposals,
    t: &mut Translation<'_>,
    node: &Node,
) -> Outputs {
    let [idx, anchors, network_sizes, ref maps @ ..] = node.inputs[..] else {
        return Err(t.refusal());
    };
    let (idx, anchors, sizes) = (t.edge(idx)?, t.edge(anchors)?, t.edge(network_sizes)?);
    let (logits, deltas) = maps.split_at(maps.len() / 2);
    let mut joined = |maps: &[TensorId], values| {
        let maps = maps.iter().map(|map| by_anchor(t, *map, values));
        let maps = maps.collect::<Result<Vec<_>, OnnxError>>()?;
        let maps: Vec<&str> = maps.iter().map(String::as_str).collect();
        Ok::<_, OnnxError>(t.nodes.one("Concat", &maps, &[int("axis", 1)]))
    };
    let (logits, deltas) = (joined(logits, 1)?, joined(deltas, 4)?);
    let n = &mut t.nodes;
    let logits = n.one("GatherElements", &[&logits, &idx], &[int("axis", 1)]);
    let deltas = n.gather_rows(&deltas, &idx);
    let anchors = n.one("Gather", &[&anchors, &idx], &[int("axis", 0)]);
    let bounds = bounds(n, &sizes, op.plus_one);
    let bounds = n.unsqueeze(&bounds, 1);
    let DecodeProposals { plus_one, min_size, score_threshold, weights } = op;
    let decoder = Decoder { weights, plus_one: *plus_one, min_size: *min_size };
    let [boxes, is_large] = decoder.decode(n, &anchors, &deltas, &bounds);
    let scores = n.one("Sigmoid", &[&logits], &[]);
    let least = n.float(*score_threshold);
    let passes = n.one("GreaterOrEqual", &[&scores, &least], &[]);
    let counts = n.one("And", &[&passes, &is_large], &[]);
    let scores = counted(n, &counts, &scores);
    Ok(edges([boxes, scores]))
}

/// NMS with the levels as classes, then the best proposals of each image.
pub(crate) fn nms_proposals(op: &NmsProposals, t: &mut Translation<'_>, node: &Node) -> Outputs {
    let NmsProposalsInputs { boxes, scores, levels, idx } = NmsProposalsInputs::of(&node.inputs);
    let rows = t.desc(*boxes).dim(1);
    let (best_first, kept) = match op.scope {
        ProposalScope::Image => (true, op.post_top_n.min(rows)),
        ProposalScope::Level => (false, rows),
        ProposalScope::Batch { .. } => return Err(t.refusal()),
    };
    let levels: Vec<i64> = t.constant(*levels)?.as_i32().iter().map(|&l| i64::from(l)).collect();
    let (boxes, scores, idx) = (t.edge(*boxes)?, t.edge(*scores)?, t.edge(*idx)?);
    let n = &mut t.nodes;
    let last = levels.iter().max().map_or(0, |last| *last);
    let levels = n.ints(&[1, 1, rows], &levels);
    let each = n.ints(&[1, last as usize + 1, 1], &(0..=last).collect::<Vec<_>>());
    let own = n.one("Equal", &[&levels, &each], &[]);
    let by_level = n.unsqueeze(&scores, 1);
    let by_level = counted(n, &own, &by_level);
    let most = op.level_top_n.map_or(op.post_top_n, |most| most.min(op.post_top_n));
    let survivors = nms(n, &boxes, &by_level, most, op.threshold, op.plus_one);
    let image_and_row = n.list(&[0, 2]);
    let places = n.one("Gather", &[&survivors, &image_and_row], &[int("axis", 1)]);
    let surviving = n.one("GatherND", &[&scores, &places], &[]);
    let images = n.rows(&scores);
    let none = n.filled(&images, &[rows], Fill::Float(OUT));
    let scores = n.one("ScatterND", &[&none, &places, &surviving], &[]);
    // With `ProposalScope::Level`, survivors stay in row order, level by level.
    let mut rank = scores.clone();
    if !best_first {
        let is_in = is_in(n, &scores);
        let order: Vec<f32> = (0..rows).map(|row| -(row as f32)).collect();
        let (order, last) = (n.floats(&[1, rows], &order), n.float(-(rows as f32)));
        rank = n.one("Where", &[&is_in, &order, &last], &[]);
    }
    let kept = n.list(&[kept as i64]);
    let [_, order] = n.many("TopK", &[&rank, &kept], &[int("axis", 1)]);
    let boxes = n.gather_rows(&boxes, &order);
    let [scores, idx] =
        [scores, idx].map(|list| n.one("GatherElements", &[&list, &order], &[int("axis", 1)]));
    let is_in = is_in(n, &scores);
    let counts = n.counts(&is_in);
    Ok(edges([boxes, scores, idx, counts]))
}

/// Concatenates the valid proposals of all images to one list.
pub(crate) fn flatten_rois(_: &FlattenRois, t: &mut Translation<'_>, node: &Node) -> Outputs {
    let [proposals, counts] = node.inputs[..] else { return Err(t.refusal()) };
    let (proposals, counts) = (t.edge(proposals)?, t.edge(counts)?);
    let n = &mut t.nodes;
    let capacity = n.one("Shape", &[&proposals], &[int("start", 1), int("end", 2)]);
    let row = n.range(&capacity);
    let counts = n.unsqueeze(&counts, 1);
    let in_use = n.one("Less", &[&row, &counts], &[]);
    let places = n.places(&in_use);
    let rois = n.one("GatherND", &[&proposals, &places], &[]);
    let image_idx = n.column(&places, 0);
    Ok(edges([rois, image_idx]))
}
