//! Files that extend other files, and overrides.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use engine::config::{Config, ConfigError, ModelKind};

/// A new folder for this test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).unwrap();
    }
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    path
}

fn sets(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| text.to_string()).collect()
}

fn with(texts: &[&str]) -> Config {
    Config::load("quickstart", &sets(texts)).unwrap()
}

#[test]
fn extends_merges_tables_and_replaces_lists() {
    let folder = folder("extends");
    write(
        &folder,
        "deep/base.toml",
        "extends = \"tiny\"\n[solver]\nmilestones = [1, 2, 3]\n\
        gamma = 0.5\n[model.rpn]\nbeta = 0.25",
    );
    write(&folder, "deep/middle.toml", "extends = \"base.toml\"\n[model.rpn]\nfg_iou = 0.6");
    let top = write(
        &folder,
        "top.toml",
        "extends = \"deep/middle.toml\"\n[solver]\n\
        milestones = [7]",
    );
    let config = Config::load(&top, &[]).unwrap();
    let mut expected = Config::load("tiny", &[]).unwrap();
    expected.solver.milestones = vec![7];
    expected.solver.gamma = 0.5;
    expected.model.rpn.beta = 0.25;
    expected.model.rpn.fg_iou = 0.6;
    assert_eq!(config, expected);
}

#[test]
fn local_file_wins_over_preset_of_same_name() {
    let folder = folder("beside");
    write(&folder, "tiny.toml", "[train]\nsteps = 77");
    let top = write(&folder, "top.toml", "extends = \"tiny.toml\"");
    let config = Config::load(&top, &[]).unwrap();
    assert_eq!((config.train.steps, config.model.fpn.channels), (77, 256));
}

#[test]
fn circular_or_missing_extends_prints_one_line_error() {
    let folder = folder("circle");
    let a = write(&folder, "a.toml", "extends = \"sub/../b.toml\"");
    write(&folder, "sub/x.toml", "");
    write(&folder, "b.toml", "extends = \"a.toml\"");
    let error = Config::load(&a, &[]).unwrap_err();
    assert!(matches!(error, ConfigError::ExtendsCircle { .. }), "{error}");
    assert!(error.to_string().contains("b.toml: `extends = \"a.toml\"` closes a cycle"), "{error}");

    let lost = write(&folder, "lost.toml", "extends = \"nowhere.toml\"");
    let text = Config::load(&lost, &[]).unwrap_err().to_string();
    assert!(text.contains("lost.toml: `extends = \"nowhere.toml\"`: not found"), "{text}");
    assert!(text.contains("quickstart"), "{text}");
}

/// Training rejects each override; detection, which does not read these keys, accepts all but the
/// last.
#[test]
fn detection_ignores_invalid_training_keys() {
    for (preset, set) in [
        ("torchvision_keypoint_r50", "input.min_size=400 input.max_size=512"),
        ("mlperf_r50", "eval.loss=true train.images_per_group=2 eval.batch_size=3"),
        ("micro", "model.kind=faster_rcnn train.best_metric=mask"),
        ("micro", "solver.warmup_factor=2 model.roi.bg_iou=1 model.backbone.frozen_stages=9"),
        ("micro", "input.min_size=400 input.max_size=300"),
    ] {
        let all: Vec<String> = set.split(' ').map(String::from).collect();
        let fault = Config::load(preset, &all).unwrap_err().to_string();
        assert!(!fault.contains("min_sizes") || fault.contains("min_sizes=[]"), "{fault}");
        let detects = Config::load_to_detect(preset, &all);
        assert_eq!(detects.is_err(), set.ends_with("=300"), "{set}: {detects:?}");
    }
}

#[test]
fn missing_config_file_lists_presets() {
    let text = Config::load("configs/quikstart.toml", &[]).unwrap_err().to_string();
    assert!(text.starts_with("configs/quikstart.toml: no such file"), "{text}");
    assert!(text.contains("did you mean quickstart?"), "{text}");
    let text = Config::load("Finetun-R18", &[]).unwrap_err().to_string();
    assert!(text.contains("did you mean finetune_r18?"), "{text}");
    assert!(!Config::load("own.toml", &[]).unwrap_err().to_string().contains("did you mean"));
    assert!(text.contains("tiny, micro, overfit_coco8"), "{text}");
}

#[test]
fn override_is_toml_value_or_plain_string() {
    let config = with(&[
        "train.steps=10",
        "solver.learning_rate=1",
        " solver.momentum = 8e-1 ",
        "model.anchors.sizes=[8, 16.5, 32]",
        "model.kind=faster_rcnn",
        "train.name=first try=2",
        "train.run_dir=\"quoted\"",
        "solver.nesterov=true",
        "data.synthetic.image_size=64",
    ]);
    assert_eq!((config.train.steps, config.solver.learning_rate), (10, 1.0));
    assert_eq!(config.solver.momentum, 0.8);
    assert_eq!(config.model.anchors.sizes, [8.0, 16.5, 32.0]);
    assert_eq!(config.model.kind, ModelKind::FasterRcnn);
    assert_eq!(config.train.name.as_deref(), Some("first try=2"));
    assert_eq!(config.train.run_dir, "quoted");
    assert!(config.solver.nesterov);
    // The other keys of the table are unchanged.
    let synthetic = config.data.synthetic.unwrap();
    assert_eq!((synthetic.image_size, synthetic.train_images), (64, 3000));
}

#[test]
fn last_override_wins() {
    assert_eq!(with(&["train.seed=1", "train.seed=2"]).train.seed, 2);
}

#[test]
fn none_clears_optional_value() {
    let config =
        with(&["data.synthetic=none", "data.train_store=s", "train.name=x", "train.name=none"]);
    assert_eq!(config.data.synthetic, None);
    assert_eq!(config.data.train_store.as_deref(), Some("s"));
    assert_eq!(config.train.name, None);
    // Where `none` is a valid word, it is an ordinary value.
    let mut with_extra = sets(&["model.fpn.extra_level=none"]);
    assert_eq!(Config::load("tiny", &with_extra).unwrap().num_levels(), 3);
    with_extra.push("model.fpn.channels=none".into());
    assert!(Config::load("tiny", &with_extra).is_err());
}

#[test]
fn saved_config_keeps_set_values() {
    let config = with(&[
        "train.name=a \"b\" = [c]",
        "train.target_box=0.5",
        "data.ids=[3, 1]",
        "input.pixel_scale=0.1",
        "train.seed=9223372036854775807",
    ]);
    assert_eq!(config.train.name.as_deref(), Some("a \"b\" = [c]"));
    let text = config.to_toml().unwrap();
    // An f32 is written with the shortest decimal that restores it, not as its exact f64 value.
    assert!(text.contains("pixel_scale = 0.1\n"), "{text}");
    assert_eq!(Config::from_toml("saved", &text).unwrap(), config);
}

#[test]
fn seed_beyond_toml_integer_is_rejected() {
    let mut config = Config::default();
    config.train.seed = u64::MAX;
    let text = config.validate().unwrap_err().to_string();
    assert!(text.starts_with("config: `train.seed` is 18446744073709551615"), "{text}");
    let text = config.to_toml().and_then(|text| Config::from_toml("saved", &text)).unwrap_err();
    assert!(matches!(text, ConfigError::Syntax { .. }), "{text}");
}

#[test]
fn removed_key_has_no_effect() {
    let text = "extends = \"micro\"\n[train]\ntuning = \"h100.json\"\n";
    let config = Config::from_toml("a run of before", text).unwrap();
    assert_eq!(config, Config::load("micro", &[]).unwrap());
    let (config, origins) =
        Config::load_with_origins("micro", &["train.tuning=h100.json".into()]).unwrap();
    assert_eq!(config, Config::load("micro", &[]).unwrap());
    assert!(
        engine::config::schema()
            .removed(&origins)
            .next()
            .unwrap()
            .starts_with("train.tuning (--set) is ignored")
    );
}
