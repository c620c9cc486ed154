//! detectron2's names of a ResNet, FPN, RPN and the heads, and its class order: the background is
//! the last row of the classifier, and the box and mask predictors have no rows for it.

use super::pattern::HERE;
use super::{Background, DELTAS, Difference, MASKS, PLAIN, Rules};
use crate::config::{
    BodyOutput, CellRule, ChannelOrder, Config, LevelEps, Model, NormKind, PasteRule, ResizeFilter,
    ResizeRounding, StrideRule,
};

/// Tensors that detectron2 stores although they follow from its config.
const CONSTANTS: [&str; 3] = ["pixel_mean", "pixel_std", "proposal_generator.anchor_generator."];

pub(super) static RULES: Rules = Rules {
    name: "detectron2",
    marks: &[
        "backbone.bottom_up.",
        "backbone.stem.",
        "proposal_generator.",
        "stem.conv1.",
        "res2.0.",
    ],
    names: &[
        // The backbone in a detector without FPN, in a detector with FPN, and in a backbone-only
        // file.
        (
            &[
                ("backbone.body.", "backbone.", "backbone.fpn."),
                ("backbone.body.", "backbone.bottom_up.", ""),
                ("", "", ""),
            ],
            &[("conv1", "stem.conv1"), ("bn1", "stem.conv1.norm")],
        ),
        (
            &[
                // The last stage of a C4 model, which processes RoIs.
                ("backbone.body.layer4.", "roi_heads.res5.", "roi_heads.box_head"),
                ("backbone.body.layer{1}.", "backbone.res{2}.", "backbone.fpn."),
                ("backbone.body.layer{1}.", "backbone.bottom_up.res{2}.", ""),
                ("layer{1}.", "res{2}.", ""),
            ],
            &[
                ("{0}.conv{1}", "{0}.conv{1}"),
                ("{0}.bn{1}", "{0}.conv{1}.norm"),
                ("{0}.downsample.0", "{0}.shortcut"),
                ("{0}.downsample.1", "{0}.shortcut.norm"),
            ],
        ),
        // detectron2 numbers all stages of a cascade, onegraph all except the first.
        (
            &[
                ("roi_heads.box_head.", "roi_heads.box_head.", "roi_heads.box_head_stage"),
                ("roi_heads.box_head.", "roi_heads.box_head.0.", ""),
                ("roi_heads.box_head_stage{0}.", "roi_heads.box_head.{0}.", ""),
            ],
            &[("{fc}", "fc{1}"), ("{0}.0", "conv{1}"), ("{0}.1", "conv{1}.norm")],
        ),
        (
            &[
                (
                    "roi_heads.box_predictor.",
                    "roi_heads.box_predictor.",
                    "roi_heads.box_predictor_stage",
                ),
                ("roi_heads.box_predictor.", "roi_heads.box_predictor.0.", ""),
                ("roi_heads.box_predictor_stage{0}.", "roi_heads.box_predictor.{0}.", ""),
            ],
            &[("cls_score", "cls_score"), ("bbox_pred", "bbox_pred")],
        ),
        // detectron2 does not number the convolution of an RPN head that has only one.
        (
            &[("rpn.head.", "proposal_generator.rpn_head.", "rpn.head.conv.1.")],
            &[("conv.0.0", "conv")],
        ),
        (
            HERE,
            &[
                ("backbone.fpn.inner_blocks.{0}.0", "backbone.fpn_lateral{2}"),
                ("backbone.fpn.inner_blocks.{0}.1", "backbone.fpn_lateral{2}.norm"),
                ("backbone.fpn.layer_blocks.{0}.0", "backbone.fpn_output{2}"),
                ("backbone.fpn.layer_blocks.{0}.1", "backbone.fpn_output{2}.norm"),
                ("rpn.head.conv.{0}.0", "proposal_generator.rpn_head.conv.conv{0}"),
                ("rpn.head.cls_logits", "proposal_generator.rpn_head.objectness_logits"),
                ("rpn.head.bbox_pred", "proposal_generator.rpn_head.anchor_deltas"),
                ("roi_heads.mask_head.{0}.0", "roi_heads.mask_head.mask_fcn{1}"),
                ("roi_heads.mask_head.{0}.1", "roi_heads.mask_head.mask_fcn{1}.norm"),
                ("roi_heads.mask_predictor.conv5_mask", "roi_heads.mask_head.deconv"),
                ("roi_heads.mask_predictor.mask_fcn_logits", "roi_heads.mask_head.predictor"),
                // In onegraph's names, the layer index also counts the ReLUs.
                ("roi_heads.keypoint_head.{0,2}", "roi_heads.keypoint_head.conv_fcn{1}"),
                (
                    "roi_heads.keypoint_predictor.kps_score_lowres",
                    "roi_heads.keypoint_head.score_lowres",
                ),
                ("fc", "stem.fc"),
            ],
        ),
    ],
    is_left_out: |name| CONSTANTS.iter().any(|constant| name.starts_with(constant)),
    background: Background {
        is_last: true,
        lacking: &[(DELTAS, 4), (MASKS, 1)],
        note: "detectron2 has no box and mask rows for the background: they are 0, and not used",
    },
    lacks,
    ..PLAIN
};

/// Number of groups of detectron2's group norms.
const GROUPS: usize = 32;

fn lacks(config: &Config) -> Vec<Difference> {
    let (model, input) = (&config.model, &config.input);
    let (groups, least) = (model.backbone.norm_groups, model.detections.min_size);
    vec![
        (
            model.has_norm(NormKind::GroupNorm) && groups != GROUPS,
            format!("group norms of {groups} groups (model.backbone.norm_groups)"),
        ),
        (
            model.anchors.cell_rule != CellRule::Exact,
            "anchors rounded to whole pixels (model.anchors.cell_rule)".into(),
        ),
        (
            model.anchors.stride_rule != StrideRule::Nominal,
            "anchor strides computed from image and map sizes (model.anchors.stride_rule)".into(),
        ),
        (
            input.resize_filter != ResizeFilter::Pil,
            "a resize filter that is not Pillow's (input.resize_filter)".into(),
        ),
        (
            input.resize_rounding != ResizeRounding::HalfUp,
            "image sides not rounded half up (input.resize_rounding)".into(),
        ),
        (
            model.roi.level_eps != LevelEps::InLog,
            "RoI levels by torchvision's rule (model.roi.level_eps)".into(),
        ),
        (
            least > 0.0,
            format!("no detections with a side below {least} (model.detections.min_size)"),
        ),
        (
            model.kind.has_keypoints() && !model.keypoint_head.half_pixel,
            "keypoints without the half-pixel offset (model.keypoint_head.half_pixel)".into(),
        ),
        (
            model.kind.has_masks() && model.detections.paste_rule != PasteRule::GridSample,
            "masks pasted into rounded boxes (model.detections.paste_rule)".into(),
        ),
    ]
}

/// Settings for detectron2's config, in its own keys, with which it builds the same model.
pub fn settings(config: &Config, num_classes: usize) -> Vec<String> {
    let (model, input) = (&config.model, &config.input);
    // detectron2's images are in 0..255.
    let scaled = |values: [f32; 3]| values.map(|value| value / input.pixel_scale);
    let pooler = if model.roi.aligned { "ROIAlignV2" } else { "ROIAlign" };
    let order = if input.channel_order == ChannelOrder::Bgr { "BGR" } else { "RGB" };
    let stride = if model.backbone.stride_in_1x1 { "True" } else { "False" };
    let ratio = model.roi.sampling_ratio;
    let mut settings = vec![
        format!("MODEL.ROI_HEADS.NUM_CLASSES {num_classes}"),
        format!("MODEL.RESNETS.STRIDE_IN_1X1 {stride}"),
        format!("MODEL.PIXEL_MEAN {:?}", scaled(input.mean)),
        format!("MODEL.PIXEL_STD {:?}", scaled(input.std)),
        format!("INPUT.FORMAT {order}"),
        format!("MODEL.ROI_BOX_HEAD.POOLER_TYPE {pooler}"),
        format!("MODEL.ROI_BOX_HEAD.POOLER_SAMPLING_RATIO {ratio}"),
    ];
    let of_detectron2 = crate::config::Roi::default();
    if model.anchors.ratios_by_level {
        settings.push(format!(
            "MODEL.ANCHOR_GENERATOR.ASPECT_RATIOS {:?}",
            config.ratios_of_levels(&model.anchors.ratios)
        ));
    }
    if model.roi.box_weights != of_detectron2.box_weights {
        let weights = model.roi.box_weights;
        settings.push(format!("MODEL.ROI_BOX_HEAD.BBOX_REG_WEIGHTS {weights:?}"));
    }
    settings.extend(layers(model));
    if model.kind.has_masks() {
        settings.push(format!("MODEL.ROI_MASK_HEAD.POOLER_TYPE {pooler}"));
        settings.push(format!("MODEL.ROI_MASK_HEAD.POOLER_SAMPLING_RATIO {ratio}"));
    }
    if model.kind.has_keypoints() {
        let head = &model.keypoint_head;
        settings.extend([
            "MODEL.KEYPOINT_ON True".to_string(),
            format!("MODEL.ROI_KEYPOINT_HEAD.NUM_KEYPOINTS {}", head.keypoints),
            format!("MODEL.ROI_KEYPOINT_HEAD.CONV_DIMS {:?}", head.channels),
            format!("MODEL.ROI_KEYPOINT_HEAD.POOLER_RESOLUTION {}", head.pooled),
            format!("MODEL.ROI_KEYPOINT_HEAD.POOLER_TYPE {pooler}"),
            format!("MODEL.ROI_KEYPOINT_HEAD.POOLER_SAMPLING_RATIO {ratio}"),
        ]);
    }
    settings
}

/// Settings that differ from detectron2's defaults: norms, and convolutions of the box head and
/// RPN.
fn layers(model: &Model) -> Vec<String> {
    let (head, mask) = (&model.box_head, &model.mask_head);
    let norm = |kind: NormKind| match kind {
        NormKind::FrozenBatchNorm | NormKind::FrozenStatistics => "FrozenBN",
        NormKind::GroupNorm => "GN",
    };
    let mut settings = Vec::new();
    if model.backbone.norm == NormKind::GroupNorm {
        settings.push("MODEL.RESNETS.NORM GN".to_string());
    }
    if let Some(width) = model.backbone.width_per_group {
        settings.push(format!("MODEL.RESNETS.NUM_GROUPS {}", model.backbone.groups));
        settings.push(format!("MODEL.RESNETS.WIDTH_PER_GROUP {width}"));
    }
    if model.backbone.output == BodyOutput::Dc5 {
        settings.push("MODEL.RESNETS.RES5_DILATION 2".to_string());
    }
    let of_box_head = head.norm.filter(|_| !head.channels.is_empty());
    let of_mask_head = mask.norm.filter(|_| model.kind.has_masks());
    let norms = [("FPN", model.fpn.norm), ("ROI_BOX_HEAD", of_box_head)];
    for (part, kind) in norms.into_iter().chain([("ROI_MASK_HEAD", of_mask_head)]) {
        settings.extend(kind.map(|kind| format!("MODEL.{part}.NORM {}", norm(kind))));
    }
    if head.class_agnostic {
        settings.push("MODEL.ROI_BOX_HEAD.CLS_AGNOSTIC_BBOX_REG True".into());
    }
    if !model.cascade.fg_iou.is_empty() {
        let ious: Vec<f32> = [&[model.roi.fg_iou], &model.cascade.fg_iou[..]].concat();
        let first = model.roi.box_weights;
        let weights =
            [vec![first], model.cascade.box_weights(&model.cascade.box_weight_factors, first)];
        let weights = weights.concat();
        settings.push("MODEL.ROI_HEADS.NAME CascadeROIHeads".into());
        // detectron2's cascade requires this to equal the first stage's threshold.
        settings.push(format!("MODEL.ROI_HEADS.IOU_THRESHOLDS [{:?}]", model.roi.fg_iou));
        settings.push(format!("MODEL.ROI_BOX_CASCADE_HEAD.IOUS {ious:?}"));
        settings.push(format!("MODEL.ROI_BOX_CASCADE_HEAD.BBOX_REG_WEIGHTS {weights:?}"));
    }
    if let Some(channels) = head.channels.first() {
        settings.push(format!("MODEL.ROI_BOX_HEAD.NUM_CONV {}", head.channels.len()));
        settings.push(format!("MODEL.ROI_BOX_HEAD.CONV_DIM {channels}"));
        settings.push(format!("MODEL.ROI_BOX_HEAD.NUM_FC {}", head.hidden.len()));
    }
    if model.rpn.convs > 1 {
        settings.push(format!("MODEL.RPN.CONV_DIMS {:?}", vec![-1; model.rpn.convs]));
    }
    settings
}
