//! Tests that every preset is embedded, valid, survives a round trip, and has the expected values.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use configs::{preset, preset_names};
use engine::config::{
    BackboneKind, BoxLoss, CellRule, ChannelOrder, Config, ExtraLevel, LevelEps, LossDivisor,
    MaskTargetRule, Optimizer, PasteRule, PostNmsScope, ResizeFilter, ResizeRounding, Schedule,
    StrideRule, WarmupRule,
};
use engine::mlperf::Recipe;
use kernels::ops::rules::novograd::NovogradForm;

fn load(name: &str) -> Config {
    Config::load(name, &[]).unwrap()
}

#[test]
fn images_per_group_is_reduced_to_divide_overridden_batch() {
    let group = |preset: &str, set: &[&str]| {
        let set: Vec<String> = set.iter().map(ToString::to_string).collect();
        Config::load(preset, &set).expect("a config").train.images_per_group
    };
    for (preset, batch, expected) in
        [("torchvision_r50", 3, 1), ("torchvision_r50", 6, 2), ("tiny", 2, 2), ("tiny", 12, 6)]
    {
        assert_eq!(group(preset, &[&format!("train.batch_size={batch}")]), expected, "{preset}");
    }
    let auto = "train.images_per_group=0";
    assert_eq!(group("tiny", &[auto]), 2);
    assert_eq!(group("tiny", &[auto, "train.micro_steps=8"]), 1);
}

#[test]
fn every_preset_file_is_embedded() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".toml") && name != "Cargo.toml" {
            let text = std::fs::read_to_string(folder.join(&name)).unwrap();
            assert_eq!(preset(&name), Some(text.as_str()), "{name} is not embedded as it stands");
            files.push(name.trim_end_matches(".toml").to_string());
        }
    }
    let mut names: Vec<_> = preset_names().collect();
    names.sort_unstable();
    files.sort_unstable();
    assert_eq!(names, files);
}

#[test]
fn every_preset_loads_and_round_trips() {
    for name in preset_names() {
        let config = load(name);
        config.validate().unwrap();
        assert_eq!(config.level_strides().len(), config.num_levels(), "{name}");
        let sizes = config.by_level(&config.model.anchors.sizes);
        assert_eq!(sizes.len(), config.num_levels(), "{name}");
        let text = config.to_toml().unwrap();
        assert_eq!(Config::from_toml("saved", &text).unwrap(), config, "{name}:\n{text}");
    }
}

#[test]
fn preset_file_equals_embedded_preset() {
    for name in preset_names() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
        let file = folder.join(format!("{name}.toml"));
        assert_eq!(Config::load(file, &[]).unwrap(), load(name));
        // The path in the README works even if the folder does not exist.
        assert_eq!(load(&format!("no-such-folder/{name}.toml")), load(name));
    }
}

#[test]
fn defaults_are_valid_with_torchvision_shapes() {
    let config = Config::default();
    config.validate().unwrap();
    assert_eq!(Config::from_toml("empty", "").unwrap(), config);
    assert_eq!(config.num_levels(), 5);
    assert_eq!(config.level_strides(), [4, 8, 16, 32, 64]);
    assert_eq!(config.model.rpn.beta, 1.0 / 9.0);
    assert_eq!(config.input.pixel_scale, 1.0 / 255.0);
}

/// Overrides for pyramid and heads of torchvision's v2 models and detectron2's new baselines.
const NEW_HEADS: [&str; 6] = [
    "model.box_head.channels = [256, 256, 256, 256]",
    "model.box_head.hidden = [1024]",
    "model.box_head.norm = \"frozen_batch_norm\"",
    "model.fpn.norm = \"frozen_batch_norm\"",
    "model.mask_head.norm = \"frozen_batch_norm\"",
    "model.rpn.convs = 2",
];
const DEEP: &str = "model.backbone.blocks = [3, 4, 23, 3]";
const BASIC: &str = "model.backbone.block = \"basic\"";
const BOXES: &str = "model.kind = \"faster_rcnn\"";

#[test]
fn presets_differ_from_base_only_in_listed_keys() {
    let eps = ["model.backbone.norm_eps = 0.00001"];
    for (base, preset, expected) in [
        ("torchvision_r50", "torchvision_r101", &[DEEP][..]),
        ("torchvision_r50", "torchvision_r18", &[BASIC, "model.backbone.blocks = [2, 2, 2, 2]"]),
        ("torchvision_r50", "torchvision_r34", &[BASIC]),
        ("torchvision_r50", "torchvision_r152", &["model.backbone.blocks = [3, 8, 36, 3]"]),
        ("torchvision_r50", "torchvision_r50_v2", &NEW_HEADS),
        ("torchvision_r50", "faster_r50", &[BOXES]),
        ("finetune", "finetune_v2", &[&NEW_HEADS[..], &eps].concat()),
        (
            "detectron2_r50_1x",
            "detectron2_r50_3x",
            &["solver.milestones = [210000, 250000]", "train.steps = 270000"],
        ),
        ("detectron2_r50_3x", "detectron2_r101_3x", &[DEEP]),
        (
            "detectron2_r50_3x",
            "detectron2_cascade_r50_3x",
            &[
                "model.box_head.class_agnostic = true",
                "model.cascade.box_weight_factors = [2.0, 3.0]",
                "model.cascade.fg_iou = [0.6, 0.7]",
                "model.rpn.post_nms_top_n_train = 2000",
            ],
        ),
        ("detectron2_r50_3x", "detectron2_faster_r50_3x", &[BOXES]),
        // For this preset, `[input.augment]`, `[solver]` and `[train]` are not compared.
        ("detectron2_r50_1x", "detectron2_r50_lsj", &NEW_HEADS),
    ] {
        let found = load(base).differences(&load(preset)).unwrap();
        let is_own = |key: &str| {
            let mut parts = ["input.augment.", "solver.", "train."].iter();
            preset.ends_with("lsj") && parts.any(|part| key.starts_with(part))
        };
        let found = found.iter().filter(|d| !is_own(&d.key));
        let mut found: Vec<String> = found.map(|d| format!("{} = {}", d.key, d.to)).collect();
        found.sort_unstable();
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(found, expected, "{preset}");
    }
    let r50 = load("torchvision_r50");
    assert_eq!(r50.model.box_head.beta, 1.0 / 9.0);
    assert_eq!(r50.model.boxes, Default::default());
    assert_eq!((r50.solver.learning_rate, r50.train.batch_size), (0.02, 16));
    let cpu = load("cpu_r50_256");
    assert_eq!((cpu.input.min_size, cpu.input.max_size), (256, 256));
    assert_eq!((cpu.train.batch_size, cpu.train.images_per_group), (1, 1));
    assert_eq!(cpu.model.num_classes, 90);
    assert_eq!(cpu.model.backbone, r50.model.backbone);
    let lsj = load("detectron2_r50_lsj");
    let augment = &lsj.input.augment;
    assert_eq!((augment.jitter_size, augment.jitter_scale), (1024, [0.1, 2.0]));
    assert_eq!((lsj.train.batch_size, lsj.train.steps), (64, 184_375));
    let (small, large) = (load("finetune_r18"), load("finetune"));
    assert_eq!((&small.solver, &small.train), (&large.solver, &large.train));
    assert_eq!(small.model.backbone.blocks, load("torchvision_r18").model.backbone.blocks);
    // The published ResNet-18 has an epsilon of 1e-5, the published detector one of 0.
    assert_eq!((small.model.backbone.norm_eps, large.model.backbone.norm_eps), (1e-5, 0.0));
}

/// Expected values are from detectron2's `Base-RCNN-FPN.yaml`, its defaults, and its code.
#[test]
fn detectron2_preset_matches_detectron2_defaults() {
    let config = load("detectron2_r50_1x");
    let (model, input, solver) = (&config.model, &config.input, &config.solver);
    assert!(model.backbone.stride_in_1x1 && !model.boxes.legacy_plus_one);
    assert_eq!((model.backbone.norm_eps, model.backbone.frozen_stages), (1e-5, 2));
    assert_eq!(model.anchors.stride_rule, StrideRule::Nominal);
    assert_eq!(model.anchors.cell_rule, CellRule::Exact);
    assert!(!model.anchors.straddle_filter);
    let rpn = &model.rpn;
    assert_eq!((rpn.pre_nms_top_n_train, rpn.pre_nms_top_n_test), (2000, 1000));
    assert_eq!((rpn.post_nms_top_n_train, rpn.post_nms_top_n_test), (1000, 1000));
    assert_eq!(
        (rpn.post_nms_scope, rpn.loss_divisor),
        (PostNmsScope::Image, LossDivisor::BatchSize)
    );
    assert_eq!((rpn.beta, model.box_head.beta, rpn.score_threshold), (0.0, 0.0, 0.0));
    assert!(rpn.min_size > 0.0 && rpn.min_size < 1e-20, "every proposal with area");
    assert_eq!((model.roi.sampling_ratio, model.roi.aligned), (0, true));
    assert_eq!(model.roi.level_eps, LevelEps::InLog);
    assert_eq!(model.mask_head.target_rule, MaskTargetRule::CocoPolygon);
    assert_eq!((model.mask_head.target_min_side, model.detections.min_size), (0.1, 0.0));
    assert_eq!(model.detections.paste_rule, PasteRule::GridSample);
    assert_eq!((model.detections.score_threshold, model.detections.per_image), (0.05, 100));
    assert_eq!((input.channel_order, input.mean), (ChannelOrder::Bgr, [103.53, 116.28, 123.675]));
    assert_eq!((input.std, input.pixel_scale, input.size_divisor), ([1.0; 3], 1.0, 32));
    assert_eq!(input.resize_rounding, ResizeRounding::HalfUp);
    assert_eq!(input.resize_filter, ResizeFilter::Pil);
    assert_eq!(input.augment.min_sizes, [640, 672, 704, 736, 768, 800]);
    assert_eq!((input.min_size, input.max_size, input.flip_probability), (800, 1333, 0.5));
    assert_eq!((solver.learning_rate, config.train.batch_size), (0.02, 16));
    assert_eq!((solver.bias_lr_factor, solver.bias_weight_decay), (1.0, None));
    assert_eq!((solver.norm_weight_decay, solver.clip_norm), (Some(0.0), 0.0));
    assert_eq!((solver.warmup_steps, solver.warmup_factor), (1000, 0.001));
}

#[test]
fn mlperf_preset_matches_mlperf_reference() {
    let config = load("mlperf_r50");
    let model = &config.model;
    assert!(model.backbone.stride_in_1x1 && model.boxes.legacy_plus_one);
    assert!(model.anchors.straddle_filter);
    assert_eq!(model.backbone.norm_eps, 0.0);
    assert_eq!(model.anchors.stride_rule, StrideRule::Nominal);
    assert_eq!(model.rpn.post_nms_scope, PostNmsScope::Batch);
    // 1,000 candidates per image, selected jointly for the 12 images of a group.
    assert_eq!(model.rpn.post_nms_top_n_train, 1000 * config.train.images_per_group);
    assert_eq!((model.rpn.min_size, model.rpn.beta), (0.0, 1.0 / 9.0));
    assert_eq!(model.box_head.beta, 1.0);
    assert_eq!(model.mask_head.target_rule, MaskTargetRule::CocoPolygon);
    assert_eq!(config.input.channel_order, ChannelOrder::Bgr);
    assert_eq!(config.input.mean, [102.9801, 115.9465, 122.7717]);
    assert_eq!((config.input.std, config.input.pixel_scale), ([1.0; 3], 1.0));
    assert_eq!(config.input.resize_rounding, ResizeRounding::HalfEven);
    assert_eq!(config.input.resize_filter, ResizeFilter::Pil);
    assert_eq!(model.anchors.cell_rule, CellRule::Detectron);
    let solver = &config.solver;
    assert_eq!((solver.learning_rate, config.train.batch_size), (0.12, 96));
    assert_eq!((solver.bias_lr_factor, solver.bias_weight_decay), (2.0, Some(0.0)));
    assert_eq!((solver.milestones.as_slice(), solver.warmup_steps), (&[12_000, 16_000][..], 625));
    assert_eq!((solver.warmup_rule, solver.first_schedule_step), (WarmupRule::SharedDelta, 1));
    // In the reference, the warm-up factor is the increase of the learning rate per step.
    let growth = solver.learning_rate * (1.0 - solver.warmup_factor) / solver.warmup_steps as f64;
    assert!((growth - 1.92e-4).abs() < 1e-12);
    assert_eq!((config.train.target_box, config.train.target_mask), (Some(0.377), Some(0.339)));
}

/// Each preset has the values that MLPerf's rules prescribe for its batch size and group size.
#[test]
fn mlperf_presets_match_values_prescribed_by_rules() {
    let names: Vec<&str> = configs::preset_names().filter(|n| n.starts_with("mlperf_")).collect();
    assert_eq!(names.len(), 8);
    for name in names {
        let config = load(name);
        let (train, solver, rpn) = (&config.train, &config.solver, &config.model.rpn);
        let recipe = Recipe::new(train.batch_size, Some(train.images_per_group)).expect("allowed");
        assert_eq!(solver.learning_rate, recipe.learning_rate, "{name}");
        assert_eq!(solver.milestones, recipe.decay_steps, "{name}");
        assert_eq!(solver.warmup_steps, recipe.warmup_steps, "{name}");
        let start = 1.0 - recipe.warmup_steps as f64 * recipe.warmup_factor / solver.learning_rate;
        // 2300 times 1.0435e-4 is slightly more than 0.24.
        assert!((solver.warmup_factor - start).abs() < 3e-5, "{name}: {start}");
        assert_eq!(rpn.post_nms_top_n_train, recipe.candidates, "{name}");
        assert_eq!(rpn.post_nms_scope == PostNmsScope::Image, recipe.per_image, "{name}");
        assert_eq!(train.steps % recipe.steps_per_epoch(), 0, "{name}: whole epochs");
        assert!((13..=20).contains(&(train.steps / recipe.steps_per_epoch())), "{name}");
        // All other values equal those of `mlperf_r50`.
        let mut same = config.clone();
        let base = load("mlperf_r50");
        same.solver = base.solver.clone();
        same.train = base.train.clone();
        same.model.rpn = base.model.rpn.clone();
        assert_eq!(same, base, "{name}");
    }
}

#[test]
fn novograd_presets_have_expected_values() {
    let config = load("novograd_384");
    let (solver, train) = (&config.solver, &config.train);
    assert_eq!((train.batch_size, train.steps, solver.learning_rate), (384, 5000, 0.042));
    assert_eq!((solver.novograd.beta2, solver.warmup_steps), (0.3, 625));
    assert_eq!(config.model.box_head.label_smoothing, 0.1);

    let config = load("novograd_512");
    let (solver, train) = (&config.solver, &config.train);
    assert_eq!((solver.optimizer, solver.schedule), (Optimizer::Novograd, Schedule::Cosine));
    assert_eq!((train.batch_size, train.steps, solver.learning_rate), (512, 3700, 0.05));
    let novograd = &solver.novograd;
    assert_eq!((novograd.form, novograd.beta1, novograd.beta2), (NovogradForm::Apex, 0.9, 0.25));
    assert!(novograd.reg_inside && novograd.bias_correction && !novograd.averaging);
    assert_eq!((config.model.box_head.loss, config.loss_weights.box_reg), (BoxLoss::Giou, 10.0));
    assert_eq!(config.model.rpn.post_nms_scope, PostNmsScope::Image);
}

#[test]
fn small_presets_have_expected_strides_and_data() {
    let tiny = load("tiny");
    assert_eq!(tiny.model.backbone.kind, BackboneKind::Small);
    assert_eq!(tiny.level_strides(), [4, 8, 16]);
    let overfit = load("overfit_coco8");
    assert_eq!(overfit.model.fpn.extra_level, ExtraLevel::MaxPool);
    assert_eq!((overfit.num_backbone_levels(), overfit.level_strides()), (3, vec![4, 8, 16, 32]));
    assert_eq!(overfit.data.ids.len(), 8);

    let quickstart = load("quickstart");
    assert_eq!(quickstart.model, tiny.model);
    assert_eq!(quickstart.solver.schedule, Schedule::Cosine);
    assert_eq!(
        quickstart.data.synthetic.as_ref().map(|s| (s.train_images, s.val_images)),
        Some((3000, 100))
    );
}
