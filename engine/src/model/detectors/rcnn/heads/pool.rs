//! Pools RoI features from the pyramid.

use graph::{GraphError, TensorId};
use kernels::ops::roi_align::{RoiAlign, RoiAlignInputs};
use kernels::ops::roi_levels::RoiLevels;

use crate::model::detectors::rcnn::rois::Rois;
use crate::model::net::Net;

/// RoI features `[M, pooled, pooled, C]`; the level of an RoI depends on its size.
///
/// # Errors
/// A config that the ops reject.
pub fn pool(
    net: &mut Net<'_>,
    maps: &[TensorId],
    rois: Rois,
    pooled: usize,
) -> Result<TensorId, GraphError> {
    pool_scaled(net, maps, rois, pooled, 1.0)
}

/// [`pool`], with the gradient multiplied by `gradient_scale`.
pub(super) fn pool_scaled(
    net: &mut Net<'_>,
    maps: &[TensorId],
    rois: Rois,
    pooled: usize,
    gradient_scale: f32,
) -> Result<TensorId, GraphError> {
    let config = &net.spec.config.model;
    let levels = net.spec.config.num_backbone_levels();
    let min_level = config.roi.min_level as i32;
    let level_op = RoiLevels {
        min_level,
        max_level: min_level + levels as i32 - 1,
        canonical_size: config.roi.canonical_size,
        canonical_level: config.roi.canonical_level as i32,
        plus_one: config.boxes.legacy_plus_one,
        rule: config.roi.level_eps,
    };
    let strides = net.spec.config.level_strides();
    let align = RoiAlign {
        pooled,
        sampling_ratio: config.roi.sampling_ratio,
        aligned: config.roi.aligned,
        spatial_scales: strides[..levels].iter().map(|s| 1.0 / *s as f32).collect(),
        gradient_scale,
    };
    let Rois { boxes, image_idx, count } = rois;
    let features = maps[..levels].to_vec();
    let levels = net.program.apply1(level_op, [boxes, image_idx])?;
    let inputs = RoiAlignInputs { features, rois: boxes, image_idx, levels, count };
    net.program.apply1(align, inputs)
}
