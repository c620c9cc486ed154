//! Conventions of a model that its tensors do not hold, and the ones that models of another project
//! share.

use crate::config::{
    BackboneKind, BodyOutput, CellRule, ChannelOrder, Config, ExtraLevel, LevelEps, Model,
    NormKind, PasteRule, ResizeFilter, ResizeRounding, StrideRule,
};

use super::container::Container;
use super::dialect::{Dialect, EPS};
use super::file::WeightsFile;
use super::published;

/// How the model of a config differs in detection from every model that the other project, one that
/// models are exported for, builds from the same tensors; empty if tensors are all that is to be
/// exchanged.
pub fn differences(config: &Config, dialect: Dialect) -> Vec<String> {
    let mut found = unknown_to_both(config);
    found.extend(match dialect {
        Dialect::Torchvision => unknown_to_torchvision(config),
        Dialect::Detectron2 => unknown_to_detectron2(config),
        Dialect::Detectron | Dialect::Benchmark | Dialect::Tensorpack => vec![],
    });
    found.into_iter().filter_map(|(differs, what)| differs.then_some(what)).collect()
}

/// Groups of detectron2's group norms.
const DETECTRON2_GROUPS: usize = 32;

/// True if a model has the difference; and its description.
type Difference = (bool, String);

fn unknown_to_both(config: &Config) -> Vec<Difference> {
    let (model, backbone) = (&config.model, &config.model.backbone);
    let eps = backbone.norm_eps;
    let other_eps = (eps - EPS).abs() > f64::EPSILON;
    let short = model.box_head.hidden.len() != 2 && model.box_head.channels.is_empty();
    let added = format!("norms that add {eps} to the variance and not {EPS}");
    vec![
        (backbone.kind == BackboneKind::Small, "the small body (model.backbone.kind)".into()),
        (backbone.kind == BackboneKind::Convnext, "a ConvNeXt (model.backbone.kind)".into()),
        (other_eps, format!("{added} (model.backbone.norm_eps)")),
        (model.boxes.legacy_plus_one, "boxes of width x2 - x1 + 1 (model.boxes)".into()),
        (
            model.fpn.extra_level == ExtraLevel::None,
            "no level above the backbone's (model.fpn)".into(),
        ),
        (short, "a box head of one layer (model.box_head)".into()),
    ]
}

fn unknown_to_torchvision(config: &Config) -> Vec<Difference> {
    let (model, input) = (&config.model, &config.input);
    let strides_early = model.backbone.strides_in_1x1() == Some(true);
    let half_up = input.resize_rounding == ResizeRounding::HalfUp;
    let rounding = if half_up { "half up" } else { "half to even" };
    let rounded = input.resize_rounding != ResizeRounding::FloorScale;
    let nominal = model.anchors.stride_rule != StrideRule::FloorPaddedOverMap;
    let detectrons = model.anchors.cell_rule == CellRule::Detectron;
    let exact = model.anchors.cell_rule == CellRule::Exact;
    let in_log = model.roi.level_eps == LevelEps::InLog;
    let grouped = model.backbone.norm == NormKind::GroupNorm;
    let cascade = !model.cascade.fg_iou.is_empty();
    let bare = !model.backbone.has_pyramid();
    let halved = model.kind.has_keypoints() && model.keypoint_head.half_pixel;
    vec![
        (bare, "no pyramid (model.backbone.output)".into()),
        (halved, "keypoints at the middle of pixels (model.keypoint_head.half_pixel)".into()),
        (grouped, "group norms in the body (model.backbone.norm)".into()),
        (cascade, "further box heads (model.cascade)".into()),
        (
            model.box_head.class_agnostic,
            "deltas that all classes share (model.box_head.class_agnostic)".into(),
        ),
        (strides_early, "the stride in the 1x1 (model.backbone.stride_in_1x1)".into()),
        (input.channel_order == ChannelOrder::Bgr, "blue first (input.channel_order)".into()),
        (rounded, format!("sides rounded {rounding} (input.resize_rounding)")),
        (input.resize_filter == ResizeFilter::Pil, "Pillow's resize (input.resize_filter)".into()),
        (nominal, "anchors at nominal strides (model.anchors.stride_rule)".into()),
        (detectrons, "Detectron's anchors (model.anchors.cell_rule)".into()),
        (exact, "anchors that are not rounded (model.anchors.cell_rule)".into()),
        (in_log, "levels by detectron2's rule (model.roi.level_eps)".into()),
        (model.roi.aligned, "RoIAlign shifted by half a pixel (model.roi.aligned)".into()),
    ]
}

fn unknown_to_detectron2(config: &Config) -> Vec<Difference> {
    let (model, input) = (&config.model, &config.input);
    let rounded = model.anchors.cell_rule != CellRule::Exact;
    let of_map = model.anchors.stride_rule != StrideRule::Nominal;
    let plain = input.resize_filter != ResizeFilter::Pil;
    let other_sides = input.resize_rounding != ResizeRounding::HalfUp;
    let after_log = model.roi.level_eps != LevelEps::InLog;
    let least = model.detections.min_size;
    let integer = model.kind.has_masks() && model.detections.paste_rule != PasteRule::GridSample;
    let unshifted = model.kind.has_keypoints() && !model.keypoint_head.half_pixel;
    let groups = model.backbone.norm_groups;
    let grouped = model.has_norm(NormKind::GroupNorm) && groups != DETECTRON2_GROUPS;
    vec![
        (grouped, format!("group norms of {groups} groups (model.backbone.norm_groups)")),
        (rounded, "anchors rounded to whole pixels (model.anchors.cell_rule)".into()),
        (of_map, "anchors at the stride of the map (model.anchors.stride_rule)".into()),
        (plain, "a resize that is not Pillow's (input.resize_filter)".into()),
        (other_sides, "sides not rounded half up (input.resize_rounding)".into()),
        (after_log, "levels by torchvision's rule (model.roi.level_eps)".into()),
        (
            least > 0.0,
            format!("no detections with a side below {least} (model.detections.min_size)"),
        ),
        (unshifted, "keypoints as they are annotated (model.keypoint_head.half_pixel)".into()),
        (integer, "masks pasted into whole pixels (model.detections.paste_rule)".into()),
    ]
}

/// Settings for detectron2's config, in its own keys, so that it shares the rest of a model.
pub fn detectron2_settings(config: &Config, num_classes: usize) -> Vec<String> {
    let (model, input) = (&config.model, &config.input);
    // In 0..255, as detectron2 feeds its images.
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

/// Settings for what detectron2's defaults lack: norms, and convolutions of the box head and RPN.
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
        // Its cascade asserts that this is the first stage's.
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

/// Contradictions between a config and the origin of a file's weights, one line each.
pub(super) fn contradictions(file: &WeightsFile, config: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    if file.dialect() == Dialect::Detectron {
        let input = &config.input;
        if input.channel_order == ChannelOrder::Rgb {
            lines.push(
                "warning: the weights of Detectron are for images with blue first, in 0..255 less \
                 their mean: set input as in mlperf_r50 (channel_order, mean, std, pixel_scale)"
                    .to_string(),
            );
        }
        if config.model.backbone.strides_in_1x1() == Some(false) {
            lines.push(
                "warning: MSRA's ResNets stride in the 1x1: set model.backbone.stride_in_1x1=true"
                    .to_string(),
            );
        }
    }
    let eps = config.model.backbone.norm_eps;
    if file.dialect() == Dialect::Detectron && file.has_statistics() && eps > EPS {
        lines.push(format!(
            "warning: the norms of this file add {EPS} to the variance, the config's {eps}: set \
             model.backbone.norm_eps={EPS}"
        ));
    }
    // Weights of onegraph itself are safetensors.
    let is_torchvisions = file.dialect() == Dialect::Torchvision
        && [Container::TorchZip, Container::TorchLegacy].contains(&file.container())
        && !file.is_backbone();
    let found = differences(config, Dialect::Torchvision);
    if is_torchvisions && !found.is_empty() {
        let found = found.join("; ");
        lines.push(format!("warning: models of torchvision do not have what this has: {found}"));
    }
    if published::is_without_epsilon(file.path()) && config.model.backbone.norm_eps > 0.0 {
        lines.push(
            "warning: torchvision evaluates this file with norms that add nothing to the variance: \
             set model.backbone.norm_eps=0"
                .to_string(),
        );
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_of_a_project_are_its_own_and_mlperfs_is_not() {
        let (torchvision, detectron2) = (Dialect::Torchvision, Dialect::Detectron2);
        for (presets, own, other, expected) in [
            (
                &[
                    "torchvision_r18",
                    "torchvision_r50",
                    "torchvision_r50_v2",
                    "torchvision_r101",
                    "faster_r50",
                    "cpu_r50_256",
                ][..],
                torchvision,
                detectron2,
                &["anchors rounded to whole pixels"][..],
            ),
            (
                &[
                    "detectron2_r50_1x",
                    "detectron2_r101_3x",
                    "detectron2_r50_lsj",
                    "detectron2_faster_r50_3x",
                    "detectron2_cascade_r50_3x",
                ],
                detectron2,
                torchvision,
                &["rounded half up", "not rounded (model.anchors", "level_eps"],
            ),
        ] {
            for preset in presets {
                let config = Config::load(preset, &[]).unwrap();
                assert_eq!(differences(&config, own), Vec::<String>::new());
                let others = differences(&config, other).join("; ");
                assert!(expected.iter().all(|what| others.contains(what)), "{others}");
            }
        }
        // How a mask is drawn is no part of torchvision's model.
        let finetune = Config::load("finetune_r18", &[]).unwrap();
        assert_eq!(differences(&finetune, Dialect::Torchvision), Vec::<String>::new());
        let mlperf = Config::load("mlperf_r50", &[]).unwrap();
        let text = differences(&mlperf, Dialect::Torchvision).join("; ");
        for what in [
            "stride in the 1x1",
            "blue first",
            "add 0 to",
            "x2 - x1 + 1",
            "nominal",
            "Pillow's",
            "Detectron's anchors",
        ] {
            assert!(text.contains(what), "{what}: {text}");
        }
        assert!(!differences(&mlperf, Dialect::Detectron2).join("; ").contains("blue first"));
        let group_norms = ["model.fpn.norm=group_norm".to_string()];
        let grouped = Config::load("detectron2_r50_1x", &group_norms).unwrap();
        let text = differences(&grouped, Dialect::Detectron2).join("; ");
        assert_eq!(text, "group norms of 8 groups (model.backbone.norm_groups)");
        let basic = Config::load("mlperf_r50", &["model.backbone.block=basic".into()]).unwrap();
        assert!(!differences(&basic, Dialect::Torchvision).join("; ").contains("1x1"));
    }

    #[test]
    fn detectron2_settings_name_what_a_config_has() {
        let cascade = [
            "model.cascade.box_weight_factors=[2, 2, 2, 2, 1.5, 1.5, 1.6, 1.6]",
            "model.anchors.ratios=[1, 2, 1, 2, 1, 2, 1, 2, 1, 3]",
            "model.anchors.ratios_by_level=true",
            "model.rpn.convs=3",
        ];
        for (preset, set, expected) in [
            (
                "detectron2_r50_lsj",
                &[][..],
                &[
                    "MODEL.FPN.NORM FrozenBN",
                    "MODEL.ROI_BOX_HEAD.NUM_CONV 4",
                    "MODEL.ROI_MASK_HEAD.NORM FrozenBN",
                    "MODEL.RPN.CONV_DIMS [-1, -1]",
                ][..],
            ),
            (
                "detectron2_cascade_r50_3x",
                &cascade,
                &[
                    "MODEL.ROI_BOX_HEAD.CLS_AGNOSTIC_BBOX_REG True",
                    "MODEL.ROI_BOX_CASCADE_HEAD.IOUS [0.5, 0.6, 0.7]",
                    "MODEL.ROI_BOX_CASCADE_HEAD.BBOX_REG_WEIGHTS [[10.0, 10.0, 5.0, 5.0], \
                     [20.0, 20.0, 10.0, 10.0], [15.0, 15.0, 8.0, 8.0]]",
                    "MODEL.ANCHOR_GENERATOR.ASPECT_RATIOS [[1.0, 2.0], [1.0, 2.0], [1.0, 2.0], \
                     [1.0, 2.0], [1.0, 3.0]]",
                    "MODEL.RPN.CONV_DIMS [-1, -1, -1]",
                ],
            ),
            (
                "detectron2_x101_3x",
                &[],
                &["MODEL.RESNETS.NUM_GROUPS 32", "MODEL.RESNETS.WIDTH_PER_GROUP 8"],
            ),
            ("detectron2_r50_dc5_3x", &[], &["MODEL.RESNETS.RES5_DILATION 2"]),
            (
                "mlperf_r50",
                &[],
                &["MODEL.PIXEL_MEAN [102.9801, 115.9465, 122.7717]", "INPUT.FORMAT BGR"],
            ),
        ] {
            let set: Vec<String> = set.iter().map(|text| text.to_string()).collect();
            let settings = detectron2_settings(&Config::load(preset, &set).unwrap(), 80);
            for setting in expected {
                assert!(settings.iter().any(|own| own == setting), "{setting}: {settings:?}");
            }
        }
    }

    #[test]
    fn keys_that_are_named_exist() {
        let config = Config::default();
        let rows = [unknown_to_both, unknown_to_torchvision, unknown_to_detectron2];
        let rows = rows.iter().flat_map(|rows| rows(&config));
        let named: Vec<String> = rows
            .filter_map(|(_, what)| {
                what.strip_suffix(')')?.rsplit_once('(').map(|(_, key)| key.into())
            })
            .collect();
        assert_eq!(named.len(), 29);
        for key in named {
            let is_table = crate::config::schema().keys_of_table(&key).next().is_some();
            assert!(is_table || crate::config::schema().key(&key).is_some(), "{key}");
        }
    }
}
