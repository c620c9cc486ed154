//! torchvision's older names. torchvision renamed the tensors of its FPN, RPN head and mask head,
//! and also translates old names when it loads a file (`_load_from_state_dict` of each module).

use super::pattern::HERE;
use super::{Difference, PLAIN, Rules};
use crate::config::{
    CellRule, ChannelOrder, Config, LevelEps, NormKind, ResizeFilter, ResizeRounding, StrideRule,
};

pub(super) static RULES: Rules = Rules {
    names: &[(
        HERE,
        &[
            ("backbone.fpn.inner_blocks.{0}.0", "backbone.fpn.inner_blocks.{0}"),
            ("backbone.fpn.layer_blocks.{0}.0", "backbone.fpn.layer_blocks.{0}"),
            ("rpn.head.conv.0.0", "rpn.head.conv"),
            ("roi_heads.mask_head.{0}.0", "roi_heads.mask_head.mask_fcn{1}"),
        ],
    )],
    lacks,
    ..PLAIN
};

fn lacks(config: &Config) -> Vec<Difference> {
    let (model, input) = (&config.model, &config.input);
    let half_up = input.resize_rounding == ResizeRounding::HalfUp;
    let rounding = if half_up { "half up" } else { "half to even" };
    let has_keypoints = model.kind.has_keypoints();
    vec![
        (!model.backbone.has_pyramid(), "no pyramid (model.backbone.output)".into()),
        (
            has_keypoints && model.keypoint_head.half_pixel,
            "keypoints at pixel centres (model.keypoint_head.half_pixel)".into(),
        ),
        (
            model.backbone.norm == NormKind::GroupNorm,
            "group norms in the backbone (model.backbone.norm)".into(),
        ),
        (!model.cascade.fg_iou.is_empty(), "additional box heads (model.cascade)".into()),
        (
            model.box_head.class_agnostic,
            "class-agnostic box deltas (model.box_head.class_agnostic)".into(),
        ),
        (
            model.backbone.strides_in_1x1() == Some(true),
            "the stride in the 1x1 convolution (model.backbone.stride_in_1x1)".into(),
        ),
        (input.channel_order == ChannelOrder::Bgr, "BGR images (input.channel_order)".into()),
        (
            input.resize_rounding != ResizeRounding::FloorScale,
            format!("image sides rounded {rounding} (input.resize_rounding)"),
        ),
        (input.resize_filter == ResizeFilter::Pil, "Pillow's resize (input.resize_filter)".into()),
        (
            model.anchors.stride_rule != StrideRule::FloorPaddedOverMap,
            "anchors at nominal strides (model.anchors.stride_rule)".into(),
        ),
        (
            model.anchors.cell_rule == CellRule::Detectron,
            "Detectron's anchors (model.anchors.cell_rule)".into(),
        ),
        (
            model.anchors.cell_rule == CellRule::Exact,
            "anchors that are not rounded (model.anchors.cell_rule)".into(),
        ),
        (
            model.roi.level_eps == LevelEps::InLog,
            "RoI levels by detectron2's rule (model.roi.level_eps)".into(),
        ),
        (model.roi.aligned, "RoIAlign shifted by half a pixel (model.roi.aligned)".into()),
    ]
}
