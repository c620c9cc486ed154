//! The config of a model of detectron2's, from detectron2's config in the golden data.

use configs::{Config, NormKind};
use serde_json::Value;

use crate::model_setup::{number, numbers, usizes};
use crate::support::Case;

/// The preset's conventions with every size of detectron2's config.
pub(crate) fn config(meta: Case<'_>, images: usize) -> Config {
    let cfg = meta.attribute("cfg");
    let is_c4 = cfg["MODEL"]["ROI_HEADS"]["NAME"] == "Res5ROIHeads";
    let is_dc5 = cfg["MODEL"]["RESNETS"]["RES5_DILATION"] == 2;
    let preset = match cfg["MODEL"]["KEYPOINT_ON"] == true {
        true => "detectron2_keypoint_r50_3x",
        false if is_c4 => "detectron2_r50_c4_3x",
        false if is_dc5 => "detectron2_r50_dc5_3x",
        false => "detectron2_r50_3x",
    };
    let mut c = Config::load(preset, &[]).expect("the preset loads");
    let model = &cfg["MODEL"];
    let size = |table: &Value, key: &str| number(table, key) as usize;
    let resnet = &model["RESNETS"];
    assert_eq!(size(resnet, "DEPTH"), 50);
    c.model.backbone.stem_channels = size(resnet, "STEM_OUT_CHANNELS");
    c.model.backbone.width = size(resnet, "WIDTH_PER_GROUP");
    c.model.backbone.stride_in_1x1 = resnet["STRIDE_IN_1X1"] == true;
    c.model.backbone.norm_eps = meta.float("frozen_bn_eps");
    c.model.backbone.frozen_stages = size(&model["BACKBONE"], "FREEZE_AT");
    if resnet["NORM"] == "GN" {
        c.model.backbone.norm = NormKind::GroupNorm;
        c.model.backbone.norm_groups = meta.usize("gn_groups");
    }
    c.model.fpn.channels = size(&model["FPN"], "OUT_CHANNELS");
    c.model.fpn.norm = norm(&model["FPN"]);
    let anchors = &model["ANCHOR_GENERATOR"];
    assert_eq!(number(anchors, "OFFSET"), 0.0);
    let sizes = anchors["SIZES"].as_array().expect("a list of levels");
    let sizes = sizes.iter().flat_map(numbers);
    c.model.anchors.sizes = sizes.map(|size| size as f32).collect();
    assert_eq!(c.by_level(&c.model.anchors.sizes).len(), c.num_levels());
    c.model.anchors.ratios =
        numbers(&anchors["ASPECT_RATIOS"][0]).iter().map(|v| *v as f32).collect();
    heads(&mut c, model);
    let (rpn, of) = (&mut c.model.rpn, &model["RPN"]);
    rpn.convs = of["CONV_DIMS"].as_array().expect("a list").len();
    rpn.pre_nms_top_n_train = size(of, "PRE_NMS_TOPK_TRAIN");
    rpn.pre_nms_top_n_test = size(of, "PRE_NMS_TOPK_TEST");
    rpn.post_nms_top_n_train = size(of, "POST_NMS_TOPK_TRAIN");
    rpn.post_nms_top_n_test = size(of, "POST_NMS_TOPK_TEST");
    rpn.nms_threshold = number(of, "NMS_THRESH") as f32;
    rpn.batch_size_per_image = size(of, "BATCH_SIZE_PER_IMAGE");
    rpn.positive_fraction = number(of, "POSITIVE_FRACTION") as f32;
    rpn.beta = number(of, "SMOOTH_L1_BETA") as f32;
    let cuts = numbers(&of["IOU_THRESHOLDS"]);
    [rpn.bg_iou, rpn.fg_iou] = [cuts[0] as f32, cuts[1] as f32];
    let (roi, of) = (&mut c.model.roi, &model["ROI_HEADS"]);
    roi.batch_size_per_image = size(of, "BATCH_SIZE_PER_IMAGE");
    roi.positive_fraction = number(of, "POSITIVE_FRACTION") as f32;
    let cut = numbers(&of["IOU_THRESHOLDS"])[0] as f32;
    [roi.bg_iou, roi.fg_iou] = [cut; 2];
    let detections = &mut c.model.detections;
    detections.score_threshold = number(of, "SCORE_THRESH_TEST") as f32;
    detections.nms_threshold = number(of, "NMS_THRESH_TEST") as f32;
    detections.per_image = size(cfg, "DETECTIONS_PER_IMAGE");
    c.input.min_size = meta.usize("short_edge");
    c.input.max_size = meta.usize("max_size");
    c.input.augment.min_sizes = vec![];
    if is_c4 || is_dc5 {
        // Padded to the largest image, whatever its sides.
        c.input.size_divisor = 1;
    }
    let three = |value: &Value| -> [f32; 3] { std::array::from_fn(|i| numbers(value)[i] as f32) };
    [c.input.mean, c.input.std] = [three(&model["PIXEL_MEAN"]), three(&model["PIXEL_STD"])];
    schedule(&mut c, &cfg["SOLVER"]);
    c.train.batch_size = images;
    c.train.images_per_group = images;
    c
}

/// The optimizer and its schedule.
fn schedule(c: &mut Config, solver: &Value) {
    c.solver.learning_rate = number(solver, "BASE_LR");
    c.solver.momentum = number(solver, "MOMENTUM");
    c.solver.weight_decay = number(solver, "WEIGHT_DECAY");
    c.solver.norm_weight_decay = Some(number(solver, "WEIGHT_DECAY_NORM"));
    c.solver.gamma = number(solver, "GAMMA");
    c.solver.milestones = usizes(&solver["STEPS"]).iter().map(|m| *m as u64).collect();
    c.solver.warmup_steps = number(solver, "WARMUP_ITERS") as u64;
    c.solver.warmup_factor = number(solver, "WARMUP_FACTOR");
    c.solver.dynamic_loss_scale = false;
    c.train.steps = number(solver, "MAX_ITER") as u64;
}

/// The box head, and the mask head or the keypoint head.
fn heads(c: &mut Config, model: &Value) {
    let size = |table: &Value, key: &str| number(table, key) as usize;
    let of = &model["ROI_BOX_HEAD"];
    c.model.box_head.pooled = size(of, "POOLER_RESOLUTION");
    c.model.box_head.channels = vec![size(of, "CONV_DIM"); size(of, "NUM_CONV")];
    c.model.box_head.norm = norm(of);
    c.model.box_head.hidden = vec![size(of, "FC_DIM"); size(of, "NUM_FC")];
    c.model.box_head.class_agnostic = of["CLS_AGNOSTIC_BBOX_REG"] == true;
    c.model.box_head.beta = number(of, "SMOOTH_L1_BETA") as f32;
    let weights = numbers(&of["BBOX_REG_WEIGHTS"]);
    c.model.roi.box_weights = [0, 1, 2, 3].map(|i| weights[i] as f32);
    c.model.roi.sampling_ratio = size(of, "POOLER_SAMPLING_RATIO");
    if model["ROI_HEADS"]["NAME"] == "CascadeROIHeads" {
        let of = &model["ROI_BOX_CASCADE_HEAD"];
        let f32s = |value: &Value| numbers(value).iter().map(|v| *v as f32).collect::<Vec<_>>();
        let weights: Vec<Vec<f32>> =
            of["BBOX_REG_WEIGHTS"].as_array().expect("a list").iter().map(f32s).collect();
        let factor = |weights: &Vec<f32>| weights[0] / c.model.roi.box_weights[0];
        c.model.cascade.box_weight_factors = weights[1..].iter().map(factor).collect();
        let scaled = |factor: f32| c.model.roi.box_weights.map(|weight| weight * factor);
        for (factor, own) in c.model.cascade.box_weight_factors.iter().zip(&weights[1..]) {
            assert_eq!(scaled(*factor)[..], own[..], "weights of a stage");
        }
        c.model.cascade.fg_iou = f32s(&of["IOUS"])[1..].to_vec();
    }
    if c.model.kind.has_keypoints() {
        let (head, of) = (&mut c.model.keypoint_head, &model["ROI_KEYPOINT_HEAD"]);
        head.pooled = size(of, "POOLER_RESOLUTION");
        head.keypoints = size(of, "NUM_KEYPOINTS");
        head.channels = usizes(&of["CONV_DIMS"]);
        head.mean_over_labelled = of["NORMALIZE_LOSS_BY_VISIBLE_KEYPOINTS"] == true;
        return;
    }
    let of = &model["ROI_MASK_HEAD"];
    c.model.mask_head.pooled = size(of, "POOLER_RESOLUTION");
    c.model.mask_head.channels = vec![size(of, "CONV_DIM"); size(of, "NUM_CONV")];
    c.model.mask_head.norm = norm(of);
    c.model.mask_head.deconv_channels = size(of, "CONV_DIM");
}

/// The norm of a part; a batch norm is compared where it takes its running statistics.
fn norm(part: &Value) -> Option<NormKind> {
    match part["NORM"].as_str() {
        Some("GN") => Some(NormKind::GroupNorm),
        Some("BN" | "FrozenBN") => Some(NormKind::FrozenBatchNorm),
        _ => None,
    }
}
