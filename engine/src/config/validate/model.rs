//! Checks of `[model]`.

use configs::Check;

use crate::config::backbone::MAX_LEVELS;
use crate::config::{Backbone, BackboneKind, Block, Config, Model, NormKind};

pub(super) fn check(config: &Config, check: &mut Check) {
    backbone(config, check);
    anchors(config, check);
    rpn(config, check);
    roi(config, check);
    heads(config, check);
}

fn backbone(config: &Config, check: &mut Check) {
    let backbone = &config.model.backbone;
    let wrong = backbone.wrong_length();
    let (key, fault) = wrong.unwrap_or_default();
    check.require(key.is_empty(), key, || fault);
    if backbone.kind != BackboneKind::Small {
        check.counts("model.backbone.blocks", &backbone.blocks);
    }
    if backbone.kind == BackboneKind::Resnet {
        groups_of_channels(backbone, check);
    }
    let stages = backbone.stages();
    stages.iter().for_each(|stage| check.at_least_one(stage.key, stage.divisor));
    let stages = stages.len();
    check.require(backbone.frozen_stages <= stages, "model.backbone.frozen_stages", || {
        let all = backbone.frozen_stages;
        format!(
            "is {all}, but the body has {stages} stages, including the stem; give 0 to {stages}"
        )
    });
    check.not_negative("model.backbone.norm_eps", backbone.norm_eps);
    if config.model.has_norm(NormKind::GroupNorm) {
        groups(config, check);
    }
    if let Some(weights) = &backbone.weights {
        check.text("model.backbone.weights", weights);
        check.require(config.model.weights.is_none(), "model.weights", || {
            "is set beside model.backbone.weights; a whole model holds its backbone: set one".into()
        });
    }
    if let Some(weights) = &config.model.weights {
        check.text("model.weights", weights);
    }
    let has_classes = config.model.weights.is_some();
    check.require(!config.model.finetune || has_classes, "model.finetune", || {
        "is true, but model.weights is not set; give the file of a whole detector".into()
    });
    check.at_least_one("model.fpn.channels", config.model.fpn.channels);
}

/// The groups of a ResNet's 3x3 convolutions.
fn groups_of_channels(backbone: &Backbone, check: &mut Check) {
    let key = "model.backbone.groups";
    let in_groups = backbone.groups > 1 || backbone.width_per_group.is_some();
    check.require(backbone.block == Block::Bottleneck || !in_groups, key, || {
        "or width_per_group is set beside model.backbone.block = \"basic\", which has neither; \
         remove it"
            .into()
    });
    let (groups, channels) = (backbone.groups, backbone.inner_width(0));
    check.require(groups > 0 && channels.is_multiple_of(groups), key, || {
        format!("is {groups}, which does not divide {channels} channels; set width_per_group")
    });
}

/// A group norm must divide all channel counts that it normalizes.
fn groups(config: &Config, check: &mut Check) {
    let backbone = &config.model.backbone;
    let groups = backbone.norm_groups;
    check.at_least_one("model.backbone.norm_groups", groups);
    check.positive("model.backbone.norm_eps", backbone.norm_eps);
    let Model { fpn, box_head: head, mask_head: mask, .. } = &config.model;
    let stages = backbone.stages().into_iter().map(|stage| stage.divisor);
    for (norm, channels, part) in [
        (Some(backbone.norm), stages.collect(), "a stage"),
        (fpn.norm, vec![fpn.channels], "the feature pyramid"),
        (head.norm, head.channels.clone(), "the box head"),
        (mask.norm, mask.channels.clone(), "the mask head"),
    ] {
        let is_whole = |count: &usize| groups == 0 || count.is_multiple_of(groups);
        let uneven = channels.into_iter().find(|count| !is_whole(count));
        let fits = norm != Some(NormKind::GroupNorm) || uneven.is_none();
        check.require(fits, "model.backbone.norm_groups", || {
            let count = uneven.unwrap_or_default();
            format!("is {groups}, which does not divide {part} of {count} channels; change either")
        });
    }
}

fn anchors(config: &Config, check: &mut Check) {
    let anchors = &config.model.anchors;
    let (key, levels) = ("model.anchors.sizes", config.num_levels());
    let is_single = !config.model.backbone.has_pyramid();
    check.require(!is_single || !anchors.sizes.is_empty(), key, || {
        "is empty; give at least one size".into()
    });
    check.require(is_single || anchors.sizes.len() == levels, key, || {
        let sizes = anchors.sizes.len();
        format!(
            "has {sizes} entries, but the model has {levels} FPN levels; give one size per level"
        )
    });
    anchors.sizes.iter().for_each(|&size| check.positive(key, size));
    let key = "model.anchors.ratios";
    check.require(!anchors.ratios.is_empty(), key, || "is empty; give at least one ratio".into());
    anchors.ratios.iter().for_each(|&ratio| check.positive(key, ratio));
    let (ratios, is_even) = (anchors.ratios.len(), anchors.ratios.len().is_multiple_of(levels));
    check.require(!anchors.ratios_by_level || is_even, key, || {
        format!(
            "has {ratios} entries for {levels} levels; give as many for each level, or set \
             model.anchors.ratios_by_level=false"
        )
    });
}

fn rpn(config: &Config, check: &mut Check) {
    let rpn = &config.model.rpn;
    check.at_least_one("model.rpn.pre_nms_top_n_train", rpn.pre_nms_top_n_train);
    check.at_least_one("model.rpn.pre_nms_top_n_test", rpn.pre_nms_top_n_test);
    check.at_least_one("model.rpn.post_nms_top_n_train", rpn.post_nms_top_n_train);
    check.at_least_one("model.rpn.post_nms_top_n_test", rpn.post_nms_top_n_test);
    for (key, most) in [
        ("model.rpn.post_nms_top_n_level_train", rpn.post_nms_top_n_level_train),
        ("model.rpn.post_nms_top_n_level_test", rpn.post_nms_top_n_level_test),
    ] {
        check.at_least_one(key, most.unwrap_or(1));
    }
    check.fraction("model.rpn.nms_threshold", rpn.nms_threshold);
    check.fraction("model.rpn.score_threshold", rpn.score_threshold);
    check.not_negative("model.rpn.min_size", rpn.min_size);
    thresholds(check, "model.rpn", rpn.fg_iou, rpn.bg_iou);
    check.at_least_one("model.rpn.batch_size_per_image", rpn.batch_size_per_image);
    check.fraction("model.rpn.positive_fraction", rpn.positive_fraction);
    check.not_negative("model.rpn.beta", rpn.beta);
}

fn roi(config: &Config, check: &mut Check) {
    let roi = &config.model.roi;
    check.at_least_one("model.roi.batch_size_per_image", roi.batch_size_per_image);
    check.fraction("model.roi.positive_fraction", roi.positive_fraction);
    thresholds(check, "model.roi", roi.fg_iou, roi.bg_iou);
    check.positive("model.roi.canonical_size", roi.canonical_size);
    check.require(roi.min_level == 2, "model.roi.min_level", || {
        format!("is {}, but the finest level has stride 4; it must be 2", roi.min_level)
    });
    check.require(roi.canonical_level <= MAX_LEVELS, "model.roi.canonical_level", || {
        format!("is {}; it must be at most {MAX_LEVELS}", roi.canonical_level)
    });
    for weight in roi.box_weights {
        check.positive("model.roi.box_weights", weight);
    }
}

fn thresholds(check: &mut Check, table: &str, fg_iou: f32, bg_iou: f32) {
    check.fraction(&format!("{table}.fg_iou"), fg_iou);
    let key = format!("{table}.bg_iou");
    check.fraction(&key, bg_iou);
    check.require(bg_iou <= fg_iou, &key, || {
        format!("is {bg_iou}, above {table}.fg_iou = {fg_iou}; it must be at most that")
    });
}

fn heads(config: &Config, check: &mut Check) {
    let (head, mask) = (&config.model.box_head, &config.model.mask_head);
    check.at_least_one("model.box_head.pooled", head.pooled);
    check.require((1..=2).contains(&head.hidden.len()), "model.box_head.hidden", || {
        format!("has {} layers; the box head has one or two", head.hidden.len())
    });
    check.counts("model.box_head.hidden", &head.hidden);
    check.require(!head.channels.contains(&0), "model.box_head.channels", || {
        format!("is {:?}; each number must be at least 1", head.channels)
    });
    check.not_negative("model.box_head.beta", head.beta);
    cascade(config, check);
    check.at_least_one("model.mask_head.pooled", mask.pooled);
    check.counts("model.mask_head.channels", &mask.channels);
    check.at_least_one("model.mask_head.deconv_channels", mask.deconv_channels);
    check.positive("model.mask_head.target_min_side", mask.target_min_side);
    check.counts("model.keypoint_head.channels", &config.model.keypoint_head.channels);
    let (keypoints, sigmas) = (config.model.keypoint_head.keypoints, &config.eval.oks_sigmas);
    let is_whole = sigmas.is_empty() || sigmas.len() == keypoints;
    check.require(is_whole && !sigmas.contains(&0.0), "eval.oks_sigmas", || {
        format!(
            "has {} values; give one above 0 for each of {keypoints} keypoints \
             (model.keypoint_head.keypoints), or none",
            sigmas.len()
        )
    });
    let detections = &config.model.detections;
    check.fraction("model.detections.score_threshold", detections.score_threshold);
    check.fraction("model.detections.nms_threshold", detections.nms_threshold);
    check.at_least_one("model.detections.per_image", detections.per_image);
    check.not_negative("model.detections.min_size", detections.min_size);
    check.fraction("model.detections.mask_threshold", detections.mask_threshold);
}

/// Most box heads behind the first.
const MAX_FURTHER_HEADS: usize = 2;

fn cascade(config: &Config, check: &mut Check) {
    let (cascade, heads) = (&config.model.cascade, config.model.cascade.fg_iou.len());
    let is_c4 = config.model.backbone.is_c4();
    check.require(!is_c4 || heads == 0, "model.cascade.fg_iou", || {
        "is set beside model.backbone.output = \"c4\", whose last stage is one head; remove it"
            .into()
    });
    check.require(heads <= MAX_FURTHER_HEADS, "model.cascade.fg_iou", || {
        format!("has {heads} values; a cascade has at most {MAX_FURTHER_HEADS} further heads")
    });
    let is_between = cascade.fg_iou.iter().all(|&iou| iou > 0.0 && iou < 1.0);
    check.require(is_between, "model.cascade.fg_iou", || {
        format!("is {:?}; each IoU must be above 0 and below 1", cascade.fg_iou)
    });
    let factors = cascade.box_weight_factors.len();
    let fits = factors == heads || factors == 4 * heads;
    check.require(fits, "model.cascade.box_weight_factors", || {
        format!(
            "has {factors} values, model.cascade.fg_iou {heads}; give one or four for each head"
        )
    });
    for &factor in &cascade.box_weight_factors {
        check.positive("model.cascade.box_weight_factors", factor);
    }
    let shares = heads == 0 || config.model.box_head.class_agnostic;
    check.require(shares, "model.box_head.class_agnostic", || {
        "is false, but the heads of a cascade take boxes that belong to no class; it must be true"
            .into()
    });
}
