//! Ops on maps: preprocessing, norms, pooling, upsampling, RoIAlign.

use graph::Node;
use kernels::boxes::roi_level;
use kernels::ops::group_norm::{GroupNorm, GroupNormInputs};
use kernels::ops::max_pool::MaxPool;
use kernels::ops::preprocess::{Preprocess, PreprocessInputs};
use kernels::ops::roi_align::{RoiAlign, RoiAlignInputs};
use kernels::ops::roi_levels::RoiLevels;
use kernels::ops::upsample_add::UpsampleAdd;

use crate::boxes::{extent, halves};
use crate::nodes::{Fill, float, int, ints, text};
use crate::proto::AttributeProto;
use crate::translation::{OnnxError, Outputs, Translation, edges};

/// Normalises pixels that are already resized and padded; the result is zero outside of each image.
/// In the file, an input with the image sizes replaces the Program's views.
pub(crate) fn preprocess(op: &Preprocess, t: &mut Translation<'_>, node: &Node) -> Outputs {
    if op.channels != 3 || op.colours {
        return Err(t.refusal());
    }
    let PreprocessInputs { pixels, views, .. } = PreprocessInputs::of(&node.inputs, [false]);
    let (mut x, sizes) = (t.edge(*pixels)?, t.edge(*views)?);
    let n = &mut t.nodes;
    if op.bgr {
        let reversed = n.list(&[2, 1, 0]);
        x = n.one("Gather", &[&x, &reversed], &[int("axis", 1)]);
    }
    let scale = n.float(op.pixel_scale);
    let [mean, std] = [op.mean, op.std].map(|values| n.floats(&[1, 3, 1, 1], &values));
    for (kind, operand) in [("Mul", &scale), ("Sub", &mean), ("Div", &std)] {
        x = n.one(kind, &[&x, operand], &[]);
    }
    let inside = [(0, [1, 1, op.height, 1]), (1, [1, 1, 1, op.width])].map(|(axis, shape)| {
        let length: usize = shape.iter().product();
        let at = n.ints(&shape, &(0..length as i64).collect::<Vec<_>>());
        let size = n.column(&sizes, axis);
        let axes = n.list(&[1, 2, 3]);
        let size = n.one("Unsqueeze", &[&size, &axes], &[]);
        n.one("Less", &[&at, &size], &[])
    });
    let inside = n.one("And", &[&inside[0], &inside[1]], &[]);
    let zero = n.float(0.0);
    Ok(edges([n.one("Where", &[&inside, &x, &zero], &[])]))
}

/// A group norm, as an instance norm over groups followed by scale and shift per channel.
pub(crate) fn group_norm(op: &GroupNorm, t: &mut Translation<'_>, node: &Node) -> Outputs {
    let GroupNormInputs { x, gamma, beta, residual, .. } =
        GroupNormInputs::of(&node.inputs, [op.residual, op.counted]);
    let [h, w, c] = [1, 2, 3].map(|axis| t.desc(*x).dim(axis));
    let mut vector = |id| {
        let values = t.constant(id)?.as_f32().to_vec();
        Ok::<_, OnnxError>(t.nodes.floats(&[1, c, 1, 1], &values))
    };
    let (gamma, beta) = (vector(*gamma)?, vector(*beta)?);
    let x = t.edge(*x)?;
    let residual = residual.map(|residual| t.edge(*residual)).transpose()?;
    let n = &mut t.nodes;
    let groups = n.reshape(&x, &[0, op.groups, c / op.groups * h * w]);
    let [ones, zeros] = [1.0, 0.0].map(|value| n.floats(&[op.groups], &vec![value; op.groups]));
    let eps = float("epsilon", op.eps);
    let normed = n.one("InstanceNormalization", &[&groups, &ones, &zeros], &[eps]);
    let mut y = n.reshape(&normed, &[0, c, h, w]);
    y = n.one("Mul", &[&y, &gamma], &[]);
    y = n.one("Add", &[&y, &beta], &[]);
    if let Some(residual) = residual {
        y = n.one("Add", &[&y, &residual], &[]);
    }
    if op.relu {
        y = n.one("Relu", &[&y], &[]);
    }
    Ok(edges([y]))
}

/// Max pooling; the indices of the maxima are not computed.
pub(crate) fn max_pool(op: &MaxPool, t: &mut Translation<'_>, node: &Node) -> Outputs {
    let x = t.edge(node.inputs[0])?;
    let [kernel, stride, pad] = [op.kernel, op.stride, op.pad].map(|pixels| pixels as i64);
    let geometry = [
        ints("kernel_shape", &[kernel; 2]),
        ints("strides", &[stride; 2]),
        ints("pads", &[pad; 4]),
    ];
    Ok(edges([t.nodes.one("MaxPool", &[&x], &geometry)]))
}

/// Adds a smaller map, upsampled by nearest neighbour, to a map. Upsampling gathers rows, then
/// columns.
pub(crate) fn upsample_add(_: &UpsampleAdd, t: &mut Translation<'_>, node: &Node) -> Outputs {
    let [lateral, top] = node.inputs[..] else { return Err(t.refusal()) };
    let sizes = [1, 2].map(|axis| [t.desc(lateral).dim(axis), t.desc(top).dim(axis)]);
    let (lateral, mut top) = (t.edge(lateral)?, t.edge(top)?);
    for (axis, [large, small]) in sizes.into_iter().enumerate() {
        let nearest: Vec<i64> = (0..large).map(|at| (at * small / large) as i64).collect();
        let nearest = t.nodes.list(&nearest);
        top = t.nodes.one("Gather", &[&top, &nearest], &[int("axis", axis as i64 + 2)]);
    }
    Ok(edges([t.nodes.one("Add", &[&lateral, &top], &[])]))
}

/// The level of each RoI, computed as the number of coarser levels (all but the finest) whose
/// minimum area the RoI reaches.
pub(crate) fn roi_levels(op: &RoiLevels, t: &mut Translation<'_>, node: &Node) -> Outputs {
    let rois = t.edge(node.inputs[0])?;
    let n = &mut t.nodes;
    let [low, high] = halves(n, &rois);
    let sides = extent(n, &high, &low, op.plus_one);
    let [width, height] = [0, 1].map(|i| n.column(&sides, i));
    let area = n.one("Mul", &[&width, &height], &[]);
    let area = n.unsqueeze(&area, 1);
    let begins: Vec<f32> = (op.min_level + 1..=op.max_level).map(|l| least_area(op, l)).collect();
    let begins = n.floats(&[1, begins.len()], &begins);
    let reached = n.one("GreaterOrEqual", &[&area, &begins], &[]);
    Ok(edges([n.counts(&reached)]))
}

/// The minimum area of RoIs on `level` or a coarser level. A binary search over all floats finds
/// it, so that results at boundaries do not depend on a runtime's logarithm.
fn least_area(op: &RoiLevels, level: i32) -> f32 {
    let reaches = |bits: u32| {
        let roi = [0.0, 0.0, f32::from_bits(bits), 1.0];
        let (min, max, size) = (op.min_level, op.max_level, op.canonical_size);
        roi_level(&roi, min, max, size, op.canonical_level, false, op.rule) >= level
    };
    let (mut below, mut from) = (0, f32::INFINITY.to_bits());
    while below + 1 < from {
        let middle = below + (from - below) / 2;
        *if reaches(middle) { &mut from } else { &mut below } = middle;
    }
    f32::from_bits(from)
}

/// RoIAlign level by level; each level's results are scattered to the positions of its RoIs.
pub(crate) fn roi_align(op: &RoiAlign, t: &mut Translation<'_>, node: &Node) -> Outputs {
    let RoiAlignInputs { features, rois, image_idx, levels, .. } = RoiAlignInputs::of(&node.inputs);
    let channels = t.desc(*features[0]).dim(3);
    let [rois, image_idx, levels] = [*rois, *image_idx, *levels].map(|id| t.edge(id));
    let (rois, image_idx, levels) = (rois?, image_idx?, levels?);
    let (mut at, mut pooled) = (Vec::new(), Vec::new());
    for (level, (map, scale)) in features.iter().zip(&op.spatial_scales).enumerate() {
        let map = t.edge(**map)?;
        let n = &mut t.nodes;
        let level = n.int(level as i64);
        let own = n.one("Equal", &[&levels, &level], &[]);
        let own = n.places(&own);
        let [rois, image_idx] =
            [&rois, &image_idx].map(|list| n.one("GatherND", &[list, &own], &[]));
        pooled.push(n.one("RoiAlign", &[&map, &rois, &image_idx], &align(op, *scale)));
        at.push(own);
    }
    let n = &mut t.nodes;
    let rows = n.rows(&levels);
    let empty = n.filled(&rows, &[channels, op.pooled, op.pooled], Fill::Float(0.0));
    let [at, pooled] = [at, pooled].map(|lists| {
        let lists: Vec<&str> = lists.iter().map(String::as_str).collect();
        n.one("Concat", &lists, &[int("axis", 0)])
    });
    Ok(edges([n.one("ScatterND", &[&empty, &at, &pooled], &[])]))
}

fn align(op: &RoiAlign, scale: f32) -> [AttributeProto; 6] {
    let side = op.pooled as i64;
    let mode = if op.aligned { "half_pixel" } else { "output_half_pixel" };
    [
        text("mode", "avg"),
        text("coordinate_transformation_mode", mode),
        int("output_height", side),
        int("output_width", side),
        int("sampling_ratio", op.sampling_ratio as i64),
        float("spatial_scale", scale),
    ]
}

#[cfg(test)]
mod tests {
    use choices::LevelEps;
    use kernels::boxes::roi_level;
    use kernels::ops::roi_levels::RoiLevels;

    use super::least_area;

    /// Tests squares whose sides are close to the boundaries between levels.
    #[test]
    fn level_boundaries_match_roi_levels_op() {
        for rule in [LevelEps::AfterLog, LevelEps::InLog] {
            let op = RoiLevels {
                min_level: 2,
                max_level: 5,
                canonical_size: 224.0,
                canonical_level: 4,
                plus_one: false,
                rule,
            };
            let begins = [3, 4, 5].map(|level| least_area(&op, level));
            for side in [0.0, 1.0, 111.9, 112.0, 223.9, 223.999, 224.0, 447.9999, 448.0, 5e3] {
                let roi = [0.0, 0.0, side, side];
                let level = roi_level(&roi, 2, 5, 224.0, 4, false, rule);
                let reached = begins.iter().filter(|begin| side * side >= **begin).count();
                assert_eq!(2 + reached as i32, level, "{side} by {rule:?}");
            }
        }
    }
}
