//! R-CNN keys whose values are valid, but in combination do not have the expected effect.

use crate::config::{BoxLoss, Config, Idle, MaskTargetRule};

/// Keys that have no effect for certain values of another key.
pub(super) const IDLE: &[Idle] = &[
    Idle {
        keys: &["model.box_head.norm"],
        switch: "model.box_head.channels",
        applies: |c| c.model.box_head.channels.is_empty(),
    },
    Idle {
        keys: &["model.box_head.beta"],
        switch: "model.box_head.loss",
        applies: |c| c.model.box_head.loss == BoxLoss::Giou,
    },
    Idle {
        keys: &["model.roi.canonical_", "model.roi.level_eps", "model.roi.min_level"],
        switch: "model.backbone.output",
        applies: |c| !c.model.backbone.has_pyramid(),
    },
    Idle {
        keys: &[
            "model.box_head.channels",
            "model.box_head.hidden",
            "model.box_head.norm",
            "model.mask_head.channels",
            "model.mask_head.norm",
        ],
        switch: "model.backbone.output",
        applies: |c| c.model.backbone.is_c4(),
    },
    Idle {
        keys: &["model.mask_head.target_min_side"],
        switch: "model.mask_head.target_rule",
        applies: |c| c.model.mask_head.target_rule != MaskTargetRule::CocoPolygon,
    },
];

/// Messages about combinations of config values that leave a part of the model untrained.
pub(super) fn advice(config: &Config) -> Vec<String> {
    let (rpn, roi) = (&config.model.rpn, &config.model.roi);
    let untrained = [
        ("model.rpn", rpn.batch_size_per_image, rpn.positive_fraction),
        ("model.roi", roi.batch_size_per_image, roi.positive_fraction),
    ];
    let untrained = untrained.into_iter().filter(|(_, images, share)| *images as f32 * share < 1.0);
    let sentence = |(key, images, share)| {
        format!(
            "{key}.positive_fraction = {share} of {key}.batch_size_per_image = {images} is less \
             than 1, so no positives are sampled"
        )
    };
    untrained.map(sentence).collect()
}
