//! Every command rejects weights that do not fit the model, and reports how many tensors match.

use crate::common::{BAD_CONFIG, FAILED, Place, good, micro};

const MODEL: &str = "runs/micro/checkpoints/step_00000002/model.safetensors";

#[test]
fn eval_rejects_other_model_and_prints_scored_images() {
    let place = Place::trained("--set train.steps=2");
    let images = "runs/data/micro/val-8x64-seed0/images";
    for (set, name) in [
        ("model.fpn.channels=16", "`backbone.fpn."),
        ("model.num_classes=9", "`roi_heads.box_predictor.cls_score.weight` ([5, "),
        ("model.backbone.stage_channels=[8,8,8,8,8]", "are not in it: `backbone.body."),
    ] {
        let anchors = match set.contains("stage") {
            true => "--set model.anchors.sizes=[8,16,32,64] --set input.size_divisor=32",
            false => "",
        };
        let eval = format!("eval --run runs/micro --set {set} {anchors}");
        place.bad(&eval, FAILED, &["model.safetensors", "does not fit the model", name]);
    }
    // The output states if only some images, or the training images, were scored.
    for (set, told) in [
        ("", "scoring all 8 images of "),
        ("--set eval.max_images=3", "scoring 3 of 8 images (eval.max_images=3) of "),
        ("--set eval.train_set=true", ", the training images (eval.train_set=true)\n"),
    ] {
        let words = [told, "parameters loaded, 0 initialised, 0 missing"];
        let said = place.prints(&format!("eval --run runs/micro {set}"), &words);
        assert_eq!(said.err.contains("training images"), set.contains("train_set"), "{}", said.err);
        assert_eq!(said.err.contains("changed"), !set.is_empty(), "{}", said.err);
    }
    place.prints(
        &format!("predict --run runs/micro --out p {images}"),
        &["parameters loaded, 0 initialised, 0 missing"],
    );
}

/// `eval` reports config keys that differ from training, although the shapes of the weights match.
#[test]
fn eval_reports_keys_changed_since_training() {
    let place = Place::trained("--set train.steps=1 --set train.best_metric=mask");
    let set = "--set model.anchors.ratios=[1,2,0.5] --set input.channel_order=bgr \
               --set eval.batch_size=2 --set model.kind=faster_rcnn";
    let images = "runs/data/micro/val-8x64-seed0/images";
    for command in ["eval --run runs/micro", &format!("predict --run runs/micro --out p {images}")]
    {
        let said = place.prints(&format!("{command} {set}"), &[]);
        let told = said.err.lines().filter(|l| l.starts_with("changed since training: "));
        let told: Vec<&str> = told.map(|line| &line["changed since training: ".len()..]).collect();
        assert_eq!(
            told,
            [
                "input.channel_order: \"rgb\" -> \"bgr\"",
                "model.anchors.ratios: [0.5, 1.0, 2.0] -> [1.0, 2.0, 0.5]",
                "model.kind: \"mask_rcnn\" -> \"faster_rcnn\"",
            ]
        );
    }
}

#[test]
fn non_finite_weights_without_detections_are_reported() {
    let place = Place::new();
    let small = "--set data.synthetic.train_images=32 --set data.synthetic.val_images=2 \
                 --set train.steps=1 --set solver.warmup_steps=0 --set eval.draw_images=0";
    place.good(&format!("train quickstart {small} --set solver.learning_rate=1e6"));
    let predict = "predict --out p runs/data/shapes/val-2x128-seed0/images";
    for command in ["eval", predict] {
        place.prints(
            &format!("{command} --run runs/quickstart"),
            &["warning: nothing was found, because the model", "not finite: `rpn."],
        );
    }
}

#[test]
fn run_starts_from_model_or_backbone() {
    let place = Place::trained("--set train.steps=2");
    let from = |key: &str, more: &str| {
        let start = format!("--set model.{key}={MODEL} --set train.steps=1 --set train.name=next");
        micro(&format!("{start} {more}"))
    };
    let wide = "--set model.box_head.hidden=[12,12]";
    let gap = ["does not fit", "`roi_heads.box_head.fc6.weight`", "--allow-partial"];
    place.bad(&from("weights", wide), FAILED, &gap);
    assert!(!place.join("runs/next").exists(), "a run that never began left its directory");
    for (key, more, told) in [
        ("weights", "", "0 initialised, 0 missing, 0 mismatched; 0 tensors unexpected"),
        ("weights", "--set model.num_classes=6", "6 initialised, 0 missing, 6 mismatched"),
        ("weights", &format!("{wide} --allow-partial"), "0 missing, 6 mismatched"),
        ("backbone.weights", wide, "0 missing, 0 mismatched; 0 tensors unexpected"),
    ] {
        place.prints(&from(key, more), &[told]);
    }
    // The log lists every name, the terminal only the first names.
    let start = from("backbone.weights", "");
    let said = good(place.command(&start).env("ONEGRAPH_LOG", "debug")).err;
    for name in ["rpn.head.conv.0.0.bias", "roi_heads.mask_predictor.mask_fcn_logits.bias"] {
        let line = said.lines().find(|l| l.contains(name) && l.contains(" DEBUG "));
        assert!(line.is_some_and(|l| l.contains("initialised")), "{name}\n{said}");
    }
    let both = from("weights", &format!("--set model.backbone.weights={MODEL}"));
    place.bad(&both, BAD_CONFIG, &["model.weights", "set only one"]);
    // The checkpoint contains all weights, so the file is no longer needed.
    std::fs::remove_file(place.join(MODEL)).expect("it is there");
    place.good("train --resume runs/next --set train.steps=2");
}
