//! RoI heads: pooling, the box head and the mask head.

use graph::{GraphError, TensorId};
use kernels::ops::roi_align::RoiAlign;
use kernels::ops::roi_levels::RoiLevels;

use super::net::{ConvShape, Net};
use super::params::Init;

/// RoIs of a batch, compacted: boxes [M, 4] in network pixels, images [M], count [1].
#[derive(Debug, Clone, Copy)]
pub(super) struct Rois {
    pub(super) boxes: TensorId,
    pub(super) image_idx: TensorId,
    pub(super) count: TensorId,
}

/// Features of the RoIs, [M, pooled, pooled, C], from the level that fits each one's size.
pub(super) fn pool(
    net: &mut Net<'_>,
    maps: &[TensorId],
    rois: Rois,
    pooled: usize,
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
    };
    let strides = net.spec.config.level_strides();
    let align = RoiAlign {
        pooled,
        sampling_ratio: config.roi.sampling_ratio,
        aligned: config.roi.aligned,
        spatial_scales: strides[..levels].iter().map(|s| 1.0 / *s as f32).collect(),
    };
    let level = net.program.apply1(level_op, &[rois.boxes, rois.image_idx])?;
    let inputs: Vec<_> = maps[..levels]
        .iter()
        .copied()
        .chain([rois.boxes, rois.image_idx, level, rois.count])
        .collect();
    net.program.apply1(align, inputs)
}

/// Class logits [M, K+1] and box deltas [M, 4(K+1)].
pub(super) fn box_head(
    net: &mut Net<'_>,
    maps: &[TensorId],
    rois: Rois,
) -> Result<(TensorId, TensorId), GraphError> {
    let config = &net.spec.config.model.box_head;
    let classes = net.spec.num_classes + 1;
    net.part("box_head.pool");
    let mut x = pool(net, maps, rois, config.pooled)?;
    net.observe("box_features", x);
    net.part("box_head.fc");
    for (i, &width) in config.hidden.iter().enumerate() {
        let name = format!("roi_heads.box_head.fc{}", i + 6);
        x = net.linear(x, &name, width, true, rois.count)?;
    }
    net.part("box_head.predictor");
    let predictor = "roi_heads.box_predictor";
    let logits = net.linear(x, &format!("{predictor}.cls_score"), classes, false, rois.count)?;
    let name = format!("{predictor}.bbox_pred");
    let deltas = net.linear(x, &name, 4 * classes, false, rois.count)?;
    net.observe("class_logits", logits);
    net.observe("box_regression", deltas);
    Ok((logits, deltas))
}

/// Mask logits [M, S, S, K+1], S twice the pooled size.
pub(super) fn mask_head(
    net: &mut Net<'_>,
    maps: &[TensorId],
    rois: Rois,
) -> Result<TensorId, GraphError> {
    let config = &net.spec.config.model.mask_head;
    let classes = net.spec.num_classes + 1;
    let count = Some(rois.count);
    net.part("mask_head.pool");
    let mut x = pool(net, maps, rois, config.pooled)?;
    net.part("mask_head.convs");
    for (i, &channels) in config.channels.iter().enumerate() {
        let name = format!("roi_heads.mask_head.{i}.0");
        let init = Init::kaiming_normal_fan_out(channels * 9);
        x = net.conv_bias(x, &name, ConvShape::new(channels, 3, 1), init, true, count)?;
    }
    net.part("mask_head.predictor");
    let predictor = "roi_heads.mask_predictor";
    let deconv = format!("{predictor}.conv5_mask");
    x = net.deconv_relu(x, &deconv, config.deconv_channels, rois.count)?;
    let init = Init::kaiming_normal_fan_out(classes);
    let shape = ConvShape::new(classes, 1, 1);
    let name = format!("{predictor}.mask_fcn_logits");
    let logits = net.conv_bias(x, &name, shape, init, false, count)?;
    net.observe("mask_logits", logits);
    Ok(logits)
}
