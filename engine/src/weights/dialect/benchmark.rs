//! maskrcnn-benchmark: its own names, but torchvision's layouts and class order.

use super::pattern::HERE;
use super::{PLAIN, Rules};

pub(super) static RULES: Rules = Rules {
    name: "maskrcnn-benchmark",
    marks: &["backbone.body.stem.", "roi_heads.box.", "backbone.fpn.fpn_inner"],
    names: &[(
        HERE,
        &[
            ("backbone.body.conv1", "backbone.body.stem.conv1"),
            ("backbone.body.bn1", "backbone.body.stem.bn1"),
            ("backbone.fpn.inner_blocks.{0}.0", "backbone.fpn.fpn_inner{1}"),
            ("backbone.fpn.layer_blocks.{0}.0", "backbone.fpn.fpn_layer{1}"),
            ("rpn.head.conv.0.0", "rpn.head.conv"),
            ("roi_heads.mask_head.{0}.0", "roi_heads.mask.feature_extractor.mask_fcn{1}"),
            // Other tensors of these modules, which no model of onegraph has: only the prefix is
            // translated.
            ("roi_heads.box_predictor.*", "roi_heads.box.predictor.*"),
            ("roi_heads.mask_predictor.*", "roi_heads.mask.predictor.*"),
            ("roi_heads.box_head.*", "roi_heads.box.feature_extractor.*"),
            ("roi_heads.mask_head.*", "roi_heads.mask.feature_extractor.*"),
        ],
    )],
    // Anchors are computed from the config.
    is_left_out: |name| name.starts_with("rpn.anchor_generator."),
    pixels: [[102.9801, 115.9465, 122.7717], [1.0; 3]],
    like: Some(("mlperf_r50", &[])),
    ..PLAIN
};
