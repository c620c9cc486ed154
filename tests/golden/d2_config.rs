//! The config of a model of detectron2's, from detectron2's config in the golden data.

use engine::config::{BoxLoss, Config, ModelKind, NormKind};
use serde_json::json;

use crate::model_configs::{Setup, mirrored, pairs};
use crate::recorded::Settings;
use crate::support::Case;

pub(crate) fn setup(meta: Case<'_>, sgd: Case<'_>) -> Setup {
    let images = pairs(meta.attribute("raw_hw"));
    let config = config(meta, images.len());
    let solver = &config.solver;
    for (name, want) in [
        ("momentum", solver.momentum),
        ("weight_decay", solver.weight_decay),
        ("weight_decay_norm", solver.norm_weight_decay.expect("it is set")),
    ] {
        assert_eq!(sgd.float(name), want, "{name} and SOLVER.{}", name.to_uppercase());
    }
    let classes = Settings(meta.attributes(), "").usize("cfg.MODEL.ROI_HEADS.NUM_CLASSES");
    mirrored(config, classes, images, meta)
}

/// The preset's conventions with every value of detectron2's config.
fn config(meta: Case<'_>, images: usize) -> Config {
    let (all, cfg) = (Settings(meta.attributes(), ""), Settings(meta.attribute("cfg"), ""));
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
    let resnet = cfg.part("MODEL.RESNETS");
    let is_dc5 = c.model.backbone.output == engine::config::BodyOutput::Dc5;
    let stages = json!(["res2", "res3", "res4", "res5"]);
    let levels = json!(["p2", "p3", "p4", "p5", "p6"]);
    let last = json!([if is_dc5 { "res5" } else { "res4" }]);
    let [body, pyramid, of_rpn, of_rois] = match is_bare {
        true => [last.clone(), json!([]), last.clone(), last],
        false => [stages.clone(), stages, levels, json!(["p2", "p3", "p4", "p5"])],
    };
    resnet.is("OUT_FEATURES", body);
    cfg.is("MODEL.FPN.IN_FEATURES", pyramid);
    cfg.is("MODEL.RPN.IN_FEATURES", of_rpn);
    cfg.is("MODEL.ROI_HEADS.IN_FEATURES", of_rois);
    cfg.is("MODEL.FPN.FUSE_TYPE", "sum");
    resnet.is("DEPTH", 50);
    resnet.is("RES5_DILATION", if is_dc5 { 2 } else { 1 });
    resnet.is("DEFORM_ON_PER_STAGE", vec![false; 4]);
    resnet.is("DEFORM_MODULATED", false);
    resnet.is("DEFORM_NUM_GROUPS", 1);
    let body = &mut c.model.backbone;
    body.stem_channels = resnet.usize("STEM_OUT_CHANNELS");
    body.groups = resnet.usize("NUM_GROUPS");
    let of_group = resnet.usize("WIDTH_PER_GROUP");
    body.width = resnet.usize("RES2_OUT_CHANNELS") / 4;
    body.width_per_group = (of_group * body.groups != body.width).then_some(of_group);
    resnet.is("RES2_OUT_CHANNELS", 4 * body.width);
    body.stride_in_1x1 = resnet.flag("STRIDE_IN_1X1");
    body.frozen_stages = cfg.usize("MODEL.BACKBONE.FREEZE_AT");
    body.norm_eps = all.float("frozen_bn_eps");
    all.agree(&["frozen_bn_eps", "bn_eps"]);
    all.is("bn_momentum", 0.1);
    all.agree(&["norm", "cfg.MODEL.RESNETS.NORM"]);
    body.norm = norm(resnet).expect("MODEL.RESNETS.NORM is empty");
    match body.norm {
        NormKind::GroupNorm => body.norm_groups = all.usize("gn_groups"),
        _ => all.is("gn_groups", json!(null)),
    }
    c.model.fpn.channels = cfg.usize("MODEL.FPN.OUT_CHANNELS");
    c.model.fpn.norm = norm(cfg.part("MODEL.FPN"));
}

/// Anchors and the RPN.
fn rpn(c: &mut Config, cfg: Settings<'_>) {
    let anchors = cfg.part("MODEL.ANCHOR_GENERATOR");
    let lists = |key: &str| -> Vec<Vec<f32>> {
        (0..anchors.list(key).len()).map(|i| anchors.f32s(&format!("{key}.{i}"))).collect()
    };
    anchors.is("NAME", "DefaultAnchorGenerator");
    anchors.is("ANGLES", json!([[-90, 0, 90]]));
    anchors.is("OFFSET", 0);
    let (sizes, ratios) = (lists("SIZES"), lists("ASPECT_RATIOS"));
    c.model.anchors.sizes = sizes.concat();
    assert_eq!(c.by_level(&c.model.anchors.sizes), sizes, "MODEL.ANCHOR_GENERATOR.SIZES");
    c.model.anchors.ratios = ratios.concat();
    c.model.anchors.ratios_by_level = ratios.len() > 1;
    let ours = c.ratios_of_levels(&c.model.anchors.ratios);
    let is_same = ours.iter().all(|own| ratios.len() == 1 && ratios[0] == *own) || ours == ratios;
    assert!(is_same, "MODEL.ANCHOR_GENERATOR.ASPECT_RATIOS are {ratios:?}");
    let of = cfg.part("MODEL.RPN");
    cfg.is("MODEL.PROPOSAL_GENERATOR.NAME", "RPN");
    of.is("HEAD_NAME", "StandardRPNHead");
    of.is("BOUNDARY_THRESH", -1);
    of.is("IOU_LABELS", vec![0, -1, 1]);
    of.is("BBOX_REG_LOSS_TYPE", "smooth_l1");
    of.is("BBOX_REG_WEIGHTS", vec![1; 4]);
    let weight = of.f32("LOSS_WEIGHT");
    c.loss_weights.objectness = weight;
    c.loss_weights.rpn_box_reg = weight * of.f32("BBOX_REG_LOSS_WEIGHT");
    let rpn = &mut c.model.rpn;
    rpn.convs = of.list("CONV_DIMS").len();
    of.is("CONV_DIMS", vec![-1; rpn.convs]);
    // There a side is over the least, here at least that.
    let least = cfg.f32("MODEL.PROPOSAL_GENERATOR.MIN_SIZE").next_up();
    rpn.min_size = rpn.min_size.max(least);
    rpn.pre_nms_top_n_train = of.usize("PRE_NMS_TOPK_TRAIN");
    rpn.pre_nms_top_n_test = of.usize("PRE_NMS_TOPK_TEST");
    rpn.post_nms_top_n_train = of.usize("POST_NMS_TOPK_TRAIN");
    rpn.post_nms_top_n_test = of.usize("POST_NMS_TOPK_TEST");
    rpn.nms_threshold = of.f32("NMS_THRESH");
    rpn.batch_size_per_image = of.usize("BATCH_SIZE_PER_IMAGE");
    rpn.positive_fraction = of.f32("POSITIVE_FRACTION");
    rpn.beta = of.f32("SMOOTH_L1_BETA");
    [rpn.bg_iou, rpn.fg_iou] = of.array("IOU_THRESHOLDS");
}

/// Samples of RoIs, the box head and its cascade, and detections.
fn box_head(c: &mut Config, cfg: Settings<'_>, is_cascade: bool) {
    let of = cfg.part("MODEL.ROI_HEADS");
    of.is("IOU_LABELS", vec![0, 1]);
    of.is("PROPOSAL_APPEND_GT", true);
    let roi = &mut c.model.roi;
    roi.batch_size_per_image = of.usize("BATCH_SIZE_PER_IMAGE");
    roi.positive_fraction = of.f32("POSITIVE_FRACTION");
    let [cut] = of.array("IOU_THRESHOLDS");
    [roi.bg_iou, roi.fg_iou] = [cut; 2];
    c.model.detections.score_threshold = of.f32("SCORE_THRESH_TEST");
    c.model.detections.nms_threshold = of.f32("NMS_THRESH_TEST");
    c.model.detections.per_image = cfg.usize("DETECTIONS_PER_IMAGE");
    let of = cfg.part("MODEL.ROI_BOX_HEAD");
    let is_c4 = c.model.backbone.is_c4();
    of.is("NAME", if is_c4 { "" } else { "FastRCNNConvFCHead" });
    of.is("POOLER_TYPE", "ROIAlignV2");
    for key in ["TRAIN_ON_PRED_BOXES", "USE_FED_LOSS", "USE_SIGMOID_CE"] {
        of.is(key, false);
    }
    of.is("FED_LOSS_FREQ_WEIGHT_POWER", 0.5);
    of.is("FED_LOSS_NUM_CLASSES", 50);
    let head = &mut c.model.box_head;
    head.loss = match of.text("BBOX_REG_LOSS_TYPE") {
        "smooth_l1" => BoxLoss::SmoothL1,
        "giou" => BoxLoss::Giou,
        other => panic!("MODEL.ROI_BOX_HEAD.BBOX_REG_LOSS_TYPE is {other}"),
    };
    head.pooled = of.usize("POOLER_RESOLUTION");
    head.channels = vec![of.usize("CONV_DIM"); of.usize("NUM_CONV")];
    head.norm = norm(of);
    head.hidden = vec![of.usize("FC_DIM"); of.usize("NUM_FC")];
    for (key, default, is_unused) in
        [("CONV_DIM", 256, head.channels.is_empty()), ("FC_DIM", 1024, head.hidden.is_empty())]
    {
        if is_unused {
            of.is(key, default);
        }
    }
    head.class_agnostic = of.flag("CLS_AGNOSTIC_BBOX_REG");
    head.beta = of.f32("SMOOTH_L1_BETA");
    c.loss_weights.box_reg = of.f32("BBOX_REG_LOSS_WEIGHT");
    c.model.roi.sampling_ratio = of.usize("POOLER_SAMPLING_RATIO");
    c.model.roi.box_weights = of.array("BBOX_REG_WEIGHTS");
    let cascade = cfg.part("MODEL.ROI_BOX_CASCADE_HEAD");
    let (weights, ious) = ("BBOX_REG_WEIGHTS", "IOUS");
    if !is_cascade {
        cascade.is(weights, json!([[10, 10, 5, 5], [20, 20, 10, 10], [30, 30, 15, 15]]));
        cascade.is(ious, json!([0.5, 0.6, 0.7]));
        return;
    }
    // The first stage's replace those of a plain head.
    of.is("BBOX_REG_WEIGHTS", json!([10, 10, 5, 5]));
    let heads = cascade.list(weights).len();
    let stages: Vec<[f32; 4]> =
        (0..heads).map(|i| cascade.array(&format!("{weights}.{i}"))).collect();
    let first = stages[0];
    c.model.roi.box_weights = first;
    let factors = stages[1..].iter().map(|own| [0, 1, 2, 3].map(|i| own[i] / first[i]));
    c.model.cascade.box_weight_factors = factors.flatten().collect();
    c.model.cascade.fg_iou = cascade.f32s(ious)[1..].to_vec();
    cfg.agree(&["MODEL.ROI_BOX_CASCADE_HEAD.IOUS.0", "MODEL.ROI_HEADS.IOU_THRESHOLDS.0"]);
    assert_eq!(
        c.model.cascade.fg_iou.len() + 1,
        heads,
        "MODEL.ROI_BOX_CASCADE_HEAD.BBOX_REG_WEIGHTS and MODEL.ROI_BOX_CASCADE_HEAD.IOUS"
    );
}

/// The mask head and the keypoint head, of which a model has one at most.
fn other_heads(c: &mut Config, cfg: Settings<'_>) {
    let of_box = "MODEL.ROI_BOX_HEAD.POOLER_SAMPLING_RATIO";
    let shared = |of: Settings<'_>, name: &str, is_used: bool| {
        of.is("NAME", name);
        of.is("POOLER_TYPE", "ROIAlignV2");
        match is_used {
            true => cfg.agree(&[of_box, &of.full("POOLER_SAMPLING_RATIO")]),
            false => of.is("POOLER_SAMPLING_RATIO", 0),
        }
        of.usize("POOLER_RESOLUTION")
    };
    let kind = c.model.kind;
    let of = cfg.part("MODEL.ROI_MASK_HEAD");
    let head = &mut c.model.mask_head;
    head.pooled = shared(of, "MaskRCNNConvUpsampleHead", kind.has_masks());
    head.deconv_channels = of.usize("CONV_DIM");
    head.channels = vec![head.deconv_channels; of.usize("NUM_CONV")];
    head.norm = norm(of);
    of.is("CLS_AGNOSTIC_MASK", false);
    let head = &mut c.model.keypoint_head;
    let of = cfg.part("MODEL.ROI_KEYPOINT_HEAD");
    head.pooled = shared(of, "KRCNNConvDeconvUpsampleHead", kind.has_keypoints());
    head.keypoints = of.usize("NUM_KEYPOINTS");
    head.channels = of.usizes("CONV_DIMS");
    head.mean_over_labelled = of.flag("NORMALIZE_LOSS_BY_VISIBLE_KEYPOINTS");
    c.data.min_keypoints = of.usize("MIN_KEYPOINTS_PER_IMAGE");
    c.loss_weights.keypoint = of.f32("LOSS_WEIGHT");
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
    let of = cfg.part("SOLVER");
    of.is("LR_SCHEDULER_NAME", "WarmupMultiStepLR");
    of.is("WARMUP_METHOD", "linear");
    // Settings of a cosine, of many processes, and of a batch that is not the recorded one.
    for (key, unused) in
        [("BASE_LR_END", 0), ("NUM_DECAYS", 3), ("REFERENCE_WORLD_SIZE", 0), ("IMS_PER_BATCH", 16)]
    {
        of.is(key, unused);
    }
    of.is("RESCALE_INTERVAL", false);
    let solver = &mut c.solver;
    solver.learning_rate = of.float("BASE_LR");
    solver.momentum = of.float("MOMENTUM");
    solver.nesterov = of.flag("NESTEROV");
    solver.weight_decay = of.float("WEIGHT_DECAY");
    solver.norm_weight_decay = Some(of.float("WEIGHT_DECAY_NORM"));
    solver.bias_lr_factor = of.float("BIAS_LR_FACTOR");
    solver.bias_weight_decay = of.get("WEIGHT_DECAY_BIAS").as_f64();
    solver.gamma = of.float("GAMMA");
    solver.milestones = of.usizes("STEPS").iter().map(|m| *m as u64).collect();
    solver.warmup_steps = of.usize("WARMUP_ITERS") as u64;
    solver.warmup_factor = of.float("WARMUP_FACTOR");
    solver.dynamic_loss_scale = false;
    c.train.steps = of.usize("MAX_ITER") as u64;
    c.train.checkpoint_every_steps = of.usize("CHECKPOINT_PERIOD") as u64;
}

/// The norm of a part; a batch norm is compared where it takes its running statistics.
fn norm(part: Settings<'_>) -> Option<NormKind> {
    match part.text("NORM") {
        "" => None,
        "GN" => Some(NormKind::GroupNorm),
        "BN" | "FrozenBN" => Some(NormKind::FrozenBatchNorm),
        other => panic!("{} is {other}", part.full("NORM")),
    }
}
