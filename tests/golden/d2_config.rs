//! The config of a model of detectron2's, from detectron2's config in the golden data.

use configs::{BoxLoss, Config, ModelKind, NormKind};
use serde_json::json;

use crate::model_setup::{Sizes, check_sizes, pairs, usizes};
use crate::recorded::Settings;
use crate::support::Case;

/// The metadata of a model: its config, its classes, the sizes of the images in the file
/// and in the network, and which of them are mirrored.
pub(crate) fn settings(meta: Case<'_>, sgd: Case<'_>) -> (Config, usize, Sizes, Sizes, Vec<i32>) {
    let images = pairs(meta.attribute("raw_hw"));
    let config = config(meta, images.len());
    let network = pairs(meta.attribute("image_sizes_hw"));
    let settings = Settings(meta.attributes());
    check_sizes(&config, settings, &images, &network);
    let solver = &config.solver;
    for (name, want) in [
        ("momentum", solver.momentum),
        ("weight_decay", solver.weight_decay),
        ("weight_decay_norm", solver.norm_weight_decay.expect("it is set")),
    ] {
        assert_eq!(sgd.float(name), want, "{name} and SOLVER.{}", name.to_uppercase());
    }
    let classes = settings.usize("cfg.MODEL.ROI_HEADS.NUM_CLASSES");
    let flips = usizes(meta.attribute("flip")).iter().map(|v| *v as i32).collect();
    (config, classes, images, network, flips)
}

/// The preset's conventions with every value of detectron2's config.
fn config(meta: Case<'_>, images: usize) -> Config {
    let (all, cfg) = (Settings(meta.attributes()), Settings(meta.attribute("cfg")));
    let heads = cfg.text("MODEL.ROI_HEADS.NAME");
    let is_bare = match cfg.text("MODEL.BACKBONE.NAME") {
        "build_resnet_fpn_backbone" => false,
        "build_resnet_backbone" => true,
        other => panic!("MODEL.BACKBONE.NAME is {other}"),
    };
    let [keypoints, masks] = ["MODEL.KEYPOINT_ON", "MODEL.MASK_ON"].map(|name| cfg.flag(name));
    let kind = match (keypoints, masks) {
        (true, true) => panic!("MODEL.KEYPOINT_ON and MODEL.MASK_ON are both true"),
        (true, false) => ModelKind::KeypointRcnn,
        (false, true) => ModelKind::MaskRcnn,
        (false, false) => ModelKind::FasterRcnn,
    };
    let preset = match (is_bare, heads) {
        (true, "Res5ROIHeads") => "detectron2_r50_c4_3x",
        (true, "StandardROIHeads") => "detectron2_r50_dc5_3x",
        (false, "StandardROIHeads") if keypoints => "detectron2_keypoint_r50_3x",
        (false, "StandardROIHeads" | "CascadeROIHeads") => "detectron2_r50_3x",
        _ => panic!("MODEL.ROI_HEADS.NAME is {heads}, without a pyramid: {is_bare}"),
    };
    let mut c = Config::load(preset, &[]).expect("the preset loads");
    c.model.kind = kind;
    cfg.is("MODEL.META_ARCHITECTURE", "GeneralizedRCNN");
    backbone(&mut c, all, cfg, is_bare);
    rpn(&mut c, cfg);
    box_head(&mut c, cfg, heads == "CascadeROIHeads");
    other_heads(&mut c, cfg);
    input(&mut c, all, cfg);
    if is_bare {
        // Padded to the largest image, whatever its sides.
        c.input.size_divisor = 1;
    }
    schedule(&mut c, cfg);
    c.train.batch_size = images;
    c.train.images_per_group = images;
    c
}

/// Body, pyramid, and the maps that each part takes.
fn backbone(c: &mut Config, all: Settings<'_>, cfg: Settings<'_>, is_bare: bool) {
    let resnet = |key: &str| format!("MODEL.RESNETS.{key}");
    let is_dc5 = c.model.backbone.output == configs::BodyOutput::Dc5;
    let stages = json!(["res2", "res3", "res4", "res5"]);
    let levels = json!(["p2", "p3", "p4", "p5", "p6"]);
    let last = json!([if is_dc5 { "res5" } else { "res4" }]);
    let [body, pyramid, of_rpn, of_rois] = match is_bare {
        true => [last.clone(), json!([]), last.clone(), last],
        false => [stages.clone(), stages, levels, json!(["p2", "p3", "p4", "p5"])],
    };
    cfg.is(&resnet("OUT_FEATURES"), body);
    cfg.is("MODEL.FPN.IN_FEATURES", pyramid);
    cfg.is("MODEL.RPN.IN_FEATURES", of_rpn);
    cfg.is("MODEL.ROI_HEADS.IN_FEATURES", of_rois);
    cfg.is("MODEL.FPN.FUSE_TYPE", "sum");
    cfg.is(&resnet("DEPTH"), 50);
    cfg.is(&resnet("RES5_DILATION"), if is_dc5 { 2 } else { 1 });
    cfg.is(&resnet("DEFORM_ON_PER_STAGE"), vec![false; 4]);
    cfg.is(&resnet("DEFORM_MODULATED"), false);
    cfg.is(&resnet("DEFORM_NUM_GROUPS"), 1);
    let body = &mut c.model.backbone;
    body.stem_channels = cfg.usize(&resnet("STEM_OUT_CHANNELS"));
    body.groups = cfg.usize(&resnet("NUM_GROUPS"));
    let (of_group, outputs) = (cfg.usize(&resnet("WIDTH_PER_GROUP")), resnet("RES2_OUT_CHANNELS"));
    body.width = cfg.usize(&outputs) / 4;
    body.width_per_group = (of_group * body.groups != body.width).then_some(of_group);
    cfg.is(&outputs, 4 * body.width);
    body.stride_in_1x1 = cfg.flag(&resnet("STRIDE_IN_1X1"));
    body.frozen_stages = cfg.usize("MODEL.BACKBONE.FREEZE_AT");
    body.norm_eps = all.float("frozen_bn_eps");
    all.agree(&["frozen_bn_eps", "bn_eps"]);
    all.is("bn_momentum", 0.1);
    all.agree(&["norm", "cfg.MODEL.RESNETS.NORM"]);
    body.norm = norm(cfg, "RESNETS").expect("MODEL.RESNETS.NORM is empty");
    match body.norm {
        NormKind::GroupNorm => body.norm_groups = all.usize("gn_groups"),
        _ => all.is("gn_groups", json!(null)),
    }
    c.model.fpn.channels = cfg.usize("MODEL.FPN.OUT_CHANNELS");
    c.model.fpn.norm = norm(cfg, "FPN");
}

/// Anchors and the RPN.
fn rpn(c: &mut Config, cfg: Settings<'_>) {
    let anchors = |key: &str| format!("MODEL.ANCHOR_GENERATOR.{key}");
    let lists = |key: &str| -> Vec<Vec<f32>> {
        let key = anchors(key);
        (0..cfg.list(&key).len()).map(|i| cfg.f32s(&format!("{key}.{i}"))).collect()
    };
    cfg.is(&anchors("NAME"), "DefaultAnchorGenerator");
    cfg.is(&anchors("ANGLES"), json!([[-90, 0, 90]]));
    cfg.is(&anchors("OFFSET"), 0);
    let (sizes, ratios) = (lists("SIZES"), lists("ASPECT_RATIOS"));
    c.model.anchors.sizes = sizes.concat();
    assert_eq!(c.by_level(&c.model.anchors.sizes), sizes, "MODEL.ANCHOR_GENERATOR.SIZES");
    c.model.anchors.ratios = ratios.concat();
    c.model.anchors.ratios_by_level = ratios.len() > 1;
    let ours = c.ratios_of_levels(&c.model.anchors.ratios);
    let is_same = ours.iter().all(|own| ratios.len() == 1 && ratios[0] == *own) || ours == ratios;
    assert!(is_same, "MODEL.ANCHOR_GENERATOR.ASPECT_RATIOS are {ratios:?}");
    let of = |key: &str| format!("MODEL.RPN.{key}");
    cfg.is("MODEL.PROPOSAL_GENERATOR.NAME", "RPN");
    cfg.is(&of("HEAD_NAME"), "StandardRPNHead");
    cfg.is(&of("BOUNDARY_THRESH"), -1);
    cfg.is(&of("IOU_LABELS"), vec![0, -1, 1]);
    cfg.is(&of("BBOX_REG_LOSS_TYPE"), "smooth_l1");
    cfg.is(&of("BBOX_REG_WEIGHTS"), vec![1; 4]);
    let weight = cfg.f32(&of("LOSS_WEIGHT"));
    c.loss_weights.objectness = weight;
    c.loss_weights.rpn_box_reg = weight * cfg.f32(&of("BBOX_REG_LOSS_WEIGHT"));
    let rpn = &mut c.model.rpn;
    rpn.convs = cfg.list(&of("CONV_DIMS")).len();
    cfg.is(&of("CONV_DIMS"), vec![-1; rpn.convs]);
    // There a side is over the least, here at least that.
    let least = cfg.f32("MODEL.PROPOSAL_GENERATOR.MIN_SIZE").next_up();
    rpn.min_size = rpn.min_size.max(least);
    rpn.pre_nms_top_n_train = cfg.usize(&of("PRE_NMS_TOPK_TRAIN"));
    rpn.pre_nms_top_n_test = cfg.usize(&of("PRE_NMS_TOPK_TEST"));
    rpn.post_nms_top_n_train = cfg.usize(&of("POST_NMS_TOPK_TRAIN"));
    rpn.post_nms_top_n_test = cfg.usize(&of("POST_NMS_TOPK_TEST"));
    rpn.nms_threshold = cfg.f32(&of("NMS_THRESH"));
    rpn.batch_size_per_image = cfg.usize(&of("BATCH_SIZE_PER_IMAGE"));
    rpn.positive_fraction = cfg.f32(&of("POSITIVE_FRACTION"));
    rpn.beta = cfg.f32(&of("SMOOTH_L1_BETA"));
    [rpn.bg_iou, rpn.fg_iou] = cfg.array(&of("IOU_THRESHOLDS"));
}

/// Samples of RoIs, the box head and its cascade, and detections.
fn box_head(c: &mut Config, cfg: Settings<'_>, is_cascade: bool) {
    let of = |key: &str| format!("MODEL.ROI_HEADS.{key}");
    cfg.is(&of("IOU_LABELS"), vec![0, 1]);
    cfg.is(&of("PROPOSAL_APPEND_GT"), true);
    let roi = &mut c.model.roi;
    roi.batch_size_per_image = cfg.usize(&of("BATCH_SIZE_PER_IMAGE"));
    roi.positive_fraction = cfg.f32(&of("POSITIVE_FRACTION"));
    let [cut] = cfg.array(&of("IOU_THRESHOLDS"));
    [roi.bg_iou, roi.fg_iou] = [cut; 2];
    c.model.detections.score_threshold = cfg.f32(&of("SCORE_THRESH_TEST"));
    c.model.detections.nms_threshold = cfg.f32(&of("NMS_THRESH_TEST"));
    c.model.detections.per_image = cfg.usize("DETECTIONS_PER_IMAGE");
    let of = |key: &str| format!("MODEL.ROI_BOX_HEAD.{key}");
    let is_c4 = c.model.backbone.is_c4();
    cfg.is(&of("NAME"), if is_c4 { "" } else { "FastRCNNConvFCHead" });
    cfg.is(&of("POOLER_TYPE"), "ROIAlignV2");
    for key in ["TRAIN_ON_PRED_BOXES", "USE_FED_LOSS", "USE_SIGMOID_CE"] {
        cfg.is(&of(key), false);
    }
    cfg.is(&of("FED_LOSS_FREQ_WEIGHT_POWER"), 0.5);
    cfg.is(&of("FED_LOSS_NUM_CLASSES"), 50);
    let head = &mut c.model.box_head;
    head.loss = match cfg.text(&of("BBOX_REG_LOSS_TYPE")) {
        "smooth_l1" => BoxLoss::SmoothL1,
        "giou" => BoxLoss::Giou,
        other => panic!("{} is {other}", of("BBOX_REG_LOSS_TYPE")),
    };
    head.pooled = cfg.usize(&of("POOLER_RESOLUTION"));
    head.channels = vec![cfg.usize(&of("CONV_DIM")); cfg.usize(&of("NUM_CONV"))];
    head.norm = norm(cfg, "ROI_BOX_HEAD");
    head.hidden = vec![cfg.usize(&of("FC_DIM")); cfg.usize(&of("NUM_FC"))];
    for (key, default, is_unused) in
        [("CONV_DIM", 256, head.channels.is_empty()), ("FC_DIM", 1024, head.hidden.is_empty())]
    {
        if is_unused {
            cfg.is(&of(key), default);
        }
    }
    head.class_agnostic = cfg.flag(&of("CLS_AGNOSTIC_BBOX_REG"));
    head.beta = cfg.f32(&of("SMOOTH_L1_BETA"));
    c.loss_weights.box_reg = cfg.f32(&of("BBOX_REG_LOSS_WEIGHT"));
    c.model.roi.sampling_ratio = cfg.usize(&of("POOLER_SAMPLING_RATIO"));
    c.model.roi.box_weights = cfg.array(&of("BBOX_REG_WEIGHTS"));
    let (weights, ious) =
        ("MODEL.ROI_BOX_CASCADE_HEAD.BBOX_REG_WEIGHTS", "MODEL.ROI_BOX_CASCADE_HEAD.IOUS");
    if !is_cascade {
        cfg.is(weights, json!([[10, 10, 5, 5], [20, 20, 10, 10], [30, 30, 15, 15]]));
        cfg.is(ious, json!([0.5, 0.6, 0.7]));
        return;
    }
    // The first stage's replace those of a plain head.
    cfg.is(&of("BBOX_REG_WEIGHTS"), json!([10, 10, 5, 5]));
    let heads = cfg.list(weights).len();
    let stages: Vec<[f32; 4]> = (0..heads).map(|i| cfg.array(&format!("{weights}.{i}"))).collect();
    let first = stages[0];
    c.model.roi.box_weights = first;
    let factors = stages[1..].iter().map(|own| [0, 1, 2, 3].map(|i| own[i] / first[i]));
    c.model.cascade.box_weight_factors = factors.flatten().collect();
    c.model.cascade.fg_iou = cfg.f32s(ious)[1..].to_vec();
    cfg.agree(&["MODEL.ROI_BOX_CASCADE_HEAD.IOUS.0", "MODEL.ROI_HEADS.IOU_THRESHOLDS.0"]);
    assert_eq!(c.model.cascade.fg_iou.len() + 1, heads, "{weights} and {ious}");
}

/// The mask head and the keypoint head, of which a model has one at most.
fn other_heads(c: &mut Config, cfg: Settings<'_>) {
    let of_box = "MODEL.ROI_BOX_HEAD.POOLER_SAMPLING_RATIO";
    let shared = |part: &str, name: &str, is_used: bool| {
        let of = |key: &str| format!("MODEL.{part}.{key}");
        cfg.is(&of("NAME"), name);
        cfg.is(&of("POOLER_TYPE"), "ROIAlignV2");
        match is_used {
            true => cfg.agree(&[of_box, &of("POOLER_SAMPLING_RATIO")]),
            false => cfg.is(&of("POOLER_SAMPLING_RATIO"), 0),
        }
        cfg.usize(&of("POOLER_RESOLUTION"))
    };
    let kind = c.model.kind;
    c.model.mask_head.pooled =
        shared("ROI_MASK_HEAD", "MaskRCNNConvUpsampleHead", kind.has_masks());
    c.model.keypoint_head.pooled =
        shared("ROI_KEYPOINT_HEAD", "KRCNNConvDeconvUpsampleHead", kind.has_keypoints());
    let (head, of) = (&mut c.model.mask_head, |key: &str| format!("MODEL.ROI_MASK_HEAD.{key}"));
    head.deconv_channels = cfg.usize(&of("CONV_DIM"));
    head.channels = vec![head.deconv_channels; cfg.usize(&of("NUM_CONV"))];
    head.norm = norm(cfg, "ROI_MASK_HEAD");
    cfg.is(&of("CLS_AGNOSTIC_MASK"), false);
    let head = &mut c.model.keypoint_head;
    let of = |key: &str| format!("MODEL.ROI_KEYPOINT_HEAD.{key}");
    head.keypoints = cfg.usize(&of("NUM_KEYPOINTS"));
    head.channels = cfg.usizes(&of("CONV_DIMS"));
    head.mean_over_labelled = cfg.flag(&of("NORMALIZE_LOSS_BY_VISIBLE_KEYPOINTS"));
    c.data.min_keypoints = cfg.usize(&of("MIN_KEYPOINTS_PER_IMAGE"));
    c.loss_weights.keypoint = cfg.f32(&of("LOSS_WEIGHT"));
}

/// Images.
fn input(c: &mut Config, all: Settings<'_>, cfg: Settings<'_>) {
    c.input.min_size = all.usize("short_edge");
    all.agree(&["short_edge", "cfg.INPUT.MIN_SIZE_TRAIN.0", "cfg.INPUT.MIN_SIZE_TEST"]);
    c.input.max_size = all.usize("max_size");
    all.agree(&["max_size", "cfg.INPUT.MAX_SIZE_TRAIN", "cfg.INPUT.MAX_SIZE_TEST"]);
    c.input.augment.min_sizes = vec![];
    cfg.is("INPUT.MIN_SIZE_TRAIN_SAMPLING", "choice");
    cfg.is("INPUT.RANDOM_FLIP", "horizontal");
    cfg.is("INPUT.FORMAT", "BGR");
    cfg.is("INPUT.MASK_FORMAT", "polygon");
    c.input.mean = cfg.array("MODEL.PIXEL_MEAN");
    c.input.std = cfg.array("MODEL.PIXEL_STD");
}

/// The optimizer and its schedule.
fn schedule(c: &mut Config, cfg: Settings<'_>) {
    let of = |key: &str| format!("SOLVER.{key}");
    cfg.is(&of("LR_SCHEDULER_NAME"), "WarmupMultiStepLR");
    cfg.is(&of("WARMUP_METHOD"), "linear");
    // Settings of a cosine, of many processes, and of a batch that is not the recorded one.
    for (key, unused) in
        [("BASE_LR_END", 0), ("NUM_DECAYS", 3), ("REFERENCE_WORLD_SIZE", 0), ("IMS_PER_BATCH", 16)]
    {
        cfg.is(&of(key), unused);
    }
    cfg.is(&of("RESCALE_INTERVAL"), false);
    let solver = &mut c.solver;
    solver.learning_rate = cfg.float(&of("BASE_LR"));
    solver.momentum = cfg.float(&of("MOMENTUM"));
    solver.nesterov = cfg.flag(&of("NESTEROV"));
    solver.weight_decay = cfg.float(&of("WEIGHT_DECAY"));
    solver.norm_weight_decay = Some(cfg.float(&of("WEIGHT_DECAY_NORM")));
    solver.bias_lr_factor = cfg.float(&of("BIAS_LR_FACTOR"));
    solver.bias_weight_decay = cfg.get(&of("WEIGHT_DECAY_BIAS")).as_f64();
    solver.gamma = cfg.float(&of("GAMMA"));
    solver.milestones = cfg.usizes(&of("STEPS")).iter().map(|m| *m as u64).collect();
    solver.warmup_steps = cfg.usize(&of("WARMUP_ITERS")) as u64;
    solver.warmup_factor = cfg.float(&of("WARMUP_FACTOR"));
    solver.dynamic_loss_scale = false;
    c.train.steps = cfg.usize(&of("MAX_ITER")) as u64;
    c.train.checkpoint_every_steps = cfg.usize(&of("CHECKPOINT_PERIOD")) as u64;
}

/// The norm of a part; a batch norm is compared where it takes its running statistics.
fn norm(cfg: Settings<'_>, part: &str) -> Option<NormKind> {
    let name = format!("MODEL.{part}.NORM");
    match cfg.text(&name) {
        "" => None,
        "GN" => Some(NormKind::GroupNorm),
        "BN" | "FrozenBN" => Some(NormKind::FrozenBatchNorm),
        other => panic!("{name} is {other}"),
    }
}
