//! Mistakes in a config are reported in one line, with the file, the key and the fix.

#![allow(clippy::unwrap_used)]

use engine::config::Config;

/// The error message for a file with this text.
fn fault(text: &str) -> String {
    Config::from_toml("my.toml", text).unwrap_err().to_string()
}

/// The error message for a preset with one override.
fn set_fault(preset: &str, text: &str) -> String {
    Config::load(preset, &[text.to_string()]).unwrap_err().to_string()
}

/// Contents of a file, and its error message.
const MISTAKES: &[(&str, &str)] = &[
    // Typos.
    (
        "[solver]\nlarning_rate = 0.1",
        "unknown key `solver.larning_rate`; did you mean `solver.learning_rate`?",
    ),
    (
        "[data.synthetic]\nimage_sise = 64",
        "unknown key `data.synthetic.image_sise`; did you mean `data.synthetic.image_size`?",
    ),
    // Keys that belong to a different table, and keys of other projects.
    (
        "[train]\nlearning_rate = 0.1",
        "unknown key `train.learning_rate`; did you mean `solver.learning_rate`?",
    ),
    ("steps = 5", "unknown key `steps`; did you mean `train.steps`?"),
    ("[train]\nimgsz = 640", "unknown key `train.imgsz`; did you mean `input.min_size`?"),
    ("[train]\nmax_epochs = 12", "unknown key `train.max_epochs`; did you mean `train.epochs`?"),
    (
        "[[solver.groups]]\nlr = 0.1",
        "unknown key `solver.groups[0].lr`; the keys of [solver.groups[0]] are match, \
         lr_factor, weight_decay",
    ),
    (
        "[data]\nextends = \"tiny\"",
        "unknown key `data.extends`; extends must be at the top of a file, before the first \
         [table]",
    ),
    // An unknown key without similar names.
    (
        "[eval]\nxyz = 5",
        "unknown key `eval.xyz`; the keys of [eval] are batch_size, max_images, weights, loss, \
         oks_sigmas, draw_images, train_set, overlap, keep_images",
    ),
    (
        "zzzzz = 5",
        "unknown key `zzzzz`; the keys of a config are model, input, data, solver, \
         loss_weights, train, eval, ranks, fusion",
    ),
    // Mistakes in arrays of tables.
    (
        "[solver.groups]\nmatch = \"*\"",
        "`solver.groups` must be a list of tables of match, lr_factor, weight_decay, got a \
         table; write [{ .. }] or [[solver.groups]]",
    ),
    (
        "[data]\ntrain = [\"a.store\"]",
        "`data.train[0]` must be a table of store, images, annotations, got the string \
         \"a.store\"",
    ),
    // Values of the wrong type.
    (
        "[train]\nsteps = \"ten\"",
        "`train.steps` must be an integer, 0 to 1000000000, \
        got the string \"ten\"",
    ),
    (
        "[train]\nsteps = -1",
        "`train.steps` must be an integer, 0 to 1000000000, \
        got the number -1",
    ),
    (
        "[train]\nseed = \"9223372036854775808\"",
        "`train.seed` must be an integer, 0 to 9223372036854775807, \
        got the number 9223372036854775808, which is too large",
    ),
    (
        "[train]\nbatch_size = 2.5",
        "`train.batch_size` must be an integer, 1 to 4096, \
        got the number 2.5",
    ),
    ("[solver]\nmomentum = true", "`solver.momentum` must be a number, 0 to 1, got true"),
    ("[solver]\nmomentum = nan", "`solver.momentum` must be a number, 0 to 1, got the number nan"),
    (
        "[solver]\nclip_norm = 1e39",
        "`solver.clip_norm` must be a number, 0 to 1e30, \
        got 1e39, which is too large",
    ),
    (
        "[model]\nkind = \"mask\"",
        "`model.kind` must be one of \"mask_rcnn\", \
        \"faster_rcnn\", \"keypoint_rcnn\", got the string \"mask\"",
    ),
    (
        "[input]\nmean = [1, 2]",
        "`input.mean` must be a list of 3 numbers, -1e6 to 1e6, got 2 items",
    ),
    (
        "[model.anchors]\nsizes = [8, \"x\"]",
        "`model.anchors.sizes[1]` must be a number, \
        got the string \"x\"",
    ),
    ("[model]\nrpn = 3", "`model.rpn` must be a table, got the number 3"),
    (
        "[train]\nname = 3",
        "`train.name` must be a quoted string, or \"none\", \
        got the number 3",
    ),
    ("[data]\nsynthetic = [1]", "`data.synthetic` must be a table, or \"none\", got a list"),
    ("extends = 3", "`extends` must be the quoted name of one config file, got 3"),
    (
        "[solver]\nnesterov = 2026-01-01",
        "`solver.nesterov` must be true or false, \
        got the date 2026-01-01",
    ),
    (
        "[train]\nbatch_size = 3\nimages_per_group = 2",
        "`train.images_per_group` is 2, which does not divide train.batch_size = 3; give a \
         divisor",
    ),
];

#[test]
fn config_file_error_includes_fix() {
    for (text, expected) in MISTAKES {
        assert_eq!(fault(text), format!("my.toml: {expected}"));
    }
    assert_eq!(
        set_fault("tiny", "model.rpm.beta=1"),
        "--set: unknown key `model.rpm`; did you mean `model.rpn`?"
    );
}

#[test]
fn config_error_names_its_layer() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("origin");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("base.toml"), "[train]\nbatch_size = 6\nimages_per_group = 4")
        .unwrap();
    let top = folder.join("top.toml");
    std::fs::write(&top, "extends = \"base.toml\"\n[train]\nsteps = 5").unwrap();
    let text = Config::load(&top, &[]).unwrap_err().to_string();
    assert!(text.contains("base.toml: `train.images_per_group` is 4, which does not"), "{text}");
    let text = Config::load(&top, &["train.images_per_group=5".into()]).unwrap_err().to_string();
    assert!(text.starts_with("--set: `train.images_per_group` is 5"), "{text}");
}

#[test]
fn invalid_toml_error_has_line() {
    let text = fault("[train]\nsteps = 5\nseed = = 6\n");
    assert!(text.starts_with("my.toml:3: not valid TOML: "), "{text}");
    assert!(!text.contains('\n'), "{text}");
    let text = fault("[train]\nsteps = 5\nsteps = 6\n");
    assert!(text.starts_with("my.toml:3: not valid TOML: duplicate key"), "{text}");
}

#[test]
fn malformed_override_error_shows_syntax() {
    for text in ["train.steps", "=5", "train..steps=5", ""] {
        assert_eq!(
            set_fault("tiny", text),
            format!("--set {text}: must be KEY=VALUE, such as train.steps=100")
        );
    }
    // A line break must not inject a second key.
    let text = set_fault("tiny", "train.steps=5\nb=6");
    assert!(text.contains("`train.steps` must be an integer"), "{text}");
}

/// Preset, override, key in the message, and a part of the message.
const BAD_VALUES: &[(&str, &str, &str, &str)] = &[
    ("tiny", "model.anchors.sizes=[8, 16]", "model.anchors.sizes", "3 FPN levels"),
    ("tiny", "model.anchors.sizes=[8, 16, 0]", "model.anchors.sizes", "greater than 0"),
    ("tiny", "model.anchors.ratios=[]", "model.anchors.ratios", "at least one"),
    ("tiny", "model.fpn.extra_level=max_pool", "model.anchors.sizes", "4 FPN levels"),
    ("tiny", "model.fpn.channels=0", "model.fpn.channels", "at least 1"),
    ("tiny", "model.backbone.norm_groups=7", "model.backbone.norm_groups", "24 channels"),
    ("tiny", "model.backbone.norm_groups=48", "model.backbone.norm_groups", "stage's 24 channels"),
    ("tiny", "model.backbone.norm_groups=0", "model.backbone.norm_groups", "at least 1"),
    ("tiny", "model.backbone.norm_eps=0", "model.backbone.norm_eps", "greater than 0"),
    ("tiny", "model.backbone.stage_channels=[24]", "model.backbone.stage_channels", "1 to 11"),
    ("tiny", "model.backbone.stage_channels=[24, 0, 8, 8]", "model.backbone.stage_channels", "1"),
    ("tiny", "model.backbone.frozen_stages=5", "model.backbone.frozen_stages", "0 to 4"),
    ("mlperf_r50", "model.backbone.blocks=[3, 4, 6]", "model.backbone.blocks", "has 4"),
    ("mlperf_r50", "model.backbone.frozen_stages=6", "model.backbone.frozen_stages", "0 to 5"),
    ("mlperf_r50", "model.backbone.width=0", "model.backbone.width", "at least 1"),
    ("tiny", "model.backbone.weights=", "model.backbone.weights", "empty"),
    ("tiny", "model.rpn.nms_threshold=1.5", "model.rpn.nms_threshold", "between 0 and 1"),
    ("tiny", "model.rpn.score_threshold=-0.1", "model.rpn.score_threshold", "between"),
    ("tiny", "model.rpn.min_size=-1", "model.rpn.min_size", "negative"),
    ("tiny", "model.rpn.bg_iou=0.8", "model.rpn.bg_iou", "model.rpn.fg_iou = 0.7"),
    ("tiny", "model.rpn.positive_fraction=2", "model.rpn.positive_fraction", "between"),
    ("tiny", "model.rpn.pre_nms_top_n_train=0", "model.rpn.pre_nms_top_n_train", "at least 1"),
    ("tiny", "model.rpn.post_nms_top_n_test=0", "model.rpn.post_nms_top_n_test", "at least 1"),
    ("tiny", "model.rpn.convs=17", "model.rpn.convs", "between 1 and 16"),
    ("faster_r50", "model.anchors.ratios_by_level=true", "model.anchors.ratios", "3 entries for"),
    ("tiny", "model.rpn.beta=-1", "model.rpn.beta", "negative"),
    ("tiny", "model.roi.batch_size_per_image=0", "model.roi.batch_size_per_image", "at least 1"),
    ("tiny", "model.roi.bg_iou=0.6", "model.roi.bg_iou", "model.roi.fg_iou = 0.5"),
    ("tiny", "model.roi.min_level=3", "model.roi.min_level", "must be 2"),
    ("tiny", "model.roi.canonical_level=99", "model.roi.canonical_level", "at most"),
    ("tiny", "model.roi.canonical_size=0", "model.roi.canonical_size", "greater than 0"),
    ("tiny", "model.roi.box_weights=[1, 1, 1, 0]", "model.roi.box_weights", "greater than 0"),
    ("tiny", "model.box_head.hidden=[1, 2, 3]", "model.box_head.hidden", "one or two"),
    ("tiny", "model.box_head.hidden=[0]", "model.box_head.hidden", "at least 1"),
    ("tiny", "model.box_head.channels=[8, 0]", "model.box_head.channels", "at least 1"),
    ("tiny", "model.box_head.norm=batch_norm", "model.box_head.norm", "frozen_batch_norm"),
    ("tiny", "model.fpn.norm=batch_norm", "model.fpn.norm", "frozen_batch_norm"),
    ("tiny", "model.mask_head.norm=batch_norm", "model.mask_head.norm", "frozen_batch_norm"),
    ("tiny", "model.box_head.pooled=0", "model.box_head.pooled", "at least 1"),
    ("tiny", "model.mask_head.channels=[]", "model.mask_head.channels", "at least one"),
    ("tiny", "model.mask_head.deconv_channels=0", "model.mask_head.deconv_channels", "1"),
    ("tiny", "model.detections.mask_threshold=2", "model.detections.mask_threshold", "between"),
    ("tiny", "model.mask_head.target_min_side=0", "model.mask_head.target_min_side", "than 0"),
    ("tiny", "model.detections.min_size=-1", "model.detections.min_size", "negative"),
    ("tiny", "model.detections.per_image=0", "model.detections.per_image", "at least 1"),
    ("tiny", "input.min_size=129", "input.max_size", "input.min_size = 129"),
    ("tiny", "input.min_size=0", "input.min_size", "at least 1"),
    ("tiny", "input.size_divisor=8", "input.size_divisor", "multiple of 16"),
    ("tiny", "input.size_divisor=0", "input.size_divisor", "at least 1"),
    ("mlperf_r50", "input.size_divisor=16", "input.size_divisor", "multiple of 32"),
    ("tiny", "input.std=[1, 1, 0]", "input.std", "greater than 0"),
    ("tiny", "input.pixel_scale=0", "input.pixel_scale", "greater than 0"),
    ("tiny", "input.flip_probability=1.1", "input.flip_probability", "between"),
    ("tiny", "input.buckets_per_orientation=0", "input.buckets_per_orientation", "at least 1"),
    ("tiny", "data.train_images=x", "data.train_images", "data.train_annotations is not"),
    ("tiny", "data.val_annotations=x", "data.val_annotations", "data.val_images is not"),
    ("quickstart", "data.train_store=x", "data.train_store", "data.synthetic=none"),
    ("quickstart", "data.train=[{store=\"x\"}]", "data.train", "data.synthetic=none"),
    ("tiny", "data.train=[{images=\"x\"}]", "data.train", "annotations, for set 1"),
    ("tiny", "data.val=[{store=\"x\"}, {store=\"x\"}]", "data.val", "second time as set 2"),
    ("quickstart", "data.synthetic.kind=cubes", "data.synthetic.kind", "\"shapes\""),
    ("quickstart", "data.synthetic.image_size=8", "data.synthetic.image_size", "at least 32"),
    ("quickstart", "data.synthetic.val_images=0", "data.synthetic.val_images", "at least 1"),
    ("tiny", "data.val_fraction=0.95", "data.val_fraction", "between 0 and 0.9"),
    ("tiny", "solver.learning_rate=0", "solver.learning_rate", "greater than 0"),
    ("tiny", "solver.momentum=1", "solver.momentum", "below 1"),
    ("tiny", "solver.weight_decay=-1", "solver.weight_decay", "negative"),
    ("tiny", "solver.bias_weight_decay=-1", "solver.bias_weight_decay", "negative"),
    ("tiny", "solver.milestones=[5, 5]", "solver.milestones", "later"),
    ("tiny", "solver.gamma=0", "solver.gamma", "greater than 0"),
    ("tiny", "solver.min_learning_rate=1", "solver.min_learning_rate", "at most"),
    ("tiny", "solver.warmup_factor=1.5", "solver.warmup_factor", "between"),
    ("tiny", "solver.clip_norm=-1", "solver.clip_norm", "negative"),
    ("tiny", "solver.initial_loss_scale=0", "solver.initial_loss_scale", "greater than 0"),
    ("tiny", "solver.loss_scale_growth_interval=0", "solver.loss_scale_growth_interval", "1"),
    ("tiny", "train.steps=0", "train.steps", "at least 1"),
    ("tiny", "train.epochs=0", "train.epochs", "greater than 0"),
    ("tiny", "solver.milestone_epochs=[5, 5]", "solver.milestone_epochs", "later"),
    ("tiny", "train.images_per_group=3", "train.images_per_group", "train.batch_size = 8"),
    ("tiny", "train.batch_size=0", "train.batch_size", "at least 1"),
    ("tiny", "train.keep_checkpoints=0", "train.keep_checkpoints", "at least 1"),
    ("mlperf_r50", "train.eval_every_steps=5", "train.eval_every_epochs", "set one of them to 0"),
    ("tiny", "train.target_box=37.7", "train.target_box", "between 0 and 1"),
    ("faster_r50", "train.target_mask=0.3", "train.target_mask", "no masks"),
    ("tiny", "train.run_dir=", "train.run_dir", "empty"),
    ("tiny", "train.name=a/b", "train.name", "slash"),
    ("tiny", "train.name=a\nb", "train.name", "control character"),
    ("tiny", "eval.batch_size=0", "eval.batch_size", "at least 1"),
];

#[test]
fn every_invalid_value_error_has_key_and_fix() {
    for (preset, text, key, part) in BAD_VALUES {
        let message = set_fault(preset, text);
        assert!(message.contains(&format!(": `{key}` ")), "{text}: {message}");
        assert!(message.contains(part), "{text}: {message}");
        assert!(!message.contains('\n'), "{text}: {message}");
    }
}
