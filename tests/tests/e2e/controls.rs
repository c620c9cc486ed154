//! Training controls: parameters frozen by name, parameter groups, averages of parameters, class
//! weights, repeated images, validation losses.

use crate::common::{BAD_CONFIG, Place, as_number, assert_has, micro};
use safetensors::SafeTensors;

const FROZEN: &str = "--set model.freeze=['backbone.*','rpn.head.*'] --set solver.warmup_steps=2";

const FROZEN_RPN: &str = "[model]\nfreeze = [\"rpn.*\"]\n";

/// The bytes of a tensor in a checkpoint file of `runs/micro`; `None` if the file lacks it.
fn tensor(place: &Place, step: u64, file: &str, name: &str) -> Option<Vec<u8>> {
    let bytes = place.bytes(&format!("runs/micro/checkpoints/step_{step:08}/{file}.safetensors"));
    let tensors = SafeTensors::deserialize(&bytes).expect("safetensors");
    tensors.tensor(name).ok().map(|tensor| tensor.data().to_vec())
}

#[test]
fn frozen_parameters_are_unchanged_and_have_no_momentum() {
    let place = Place::new();
    let few =
        "--set train.checkpoint_every_steps=1 --set train.keep_checkpoints=9 --set train.steps=4";
    place.prints(
        &micro(&format!("{few} {FROZEN}")),
        &["model.freeze keeps parameters at random weights"],
    );
    for (name, is_frozen) in [
        ("backbone.body.layer2.0.conv1.weight", true),
        ("backbone.body.layer2.0.bn1.bias", true),
        ("backbone.fpn.layer_blocks.0.0.weight", true),
        ("rpn.head.bbox_pred.bias", true),
        ("roi_heads.box_predictor.cls_score.weight", false),
    ] {
        let at = |step| tensor(&place, step, "model", name).expect(name);
        assert_eq!(at(1) == at(4), is_frozen, "{name}");
        let momentum = tensor(&place, 4, "state", &format!("momentum/{name}"));
        assert_eq!(momentum.is_none(), is_frozen, "{name}");
    }
    let resume = "train --resume runs/micro --set train.steps=6";
    for set in ["--set model.freeze=[]", "--override --set model.freeze=['backbone.*']"] {
        let words = ["model.freeze: [\"backbone.*\", \"rpn.head.*\"] -> [", "model.weights"];
        place.bad(&format!("{resume} {set}"), BAD_CONFIG, &words);
    }
    place.good(resume);
    place.good(&micro(&format!("--set train.steps=6 {FROZEN} --set train.name=whole")));
    assert!(place.state("runs/micro", 6) == place.state("runs/whole", 6), "resuming differs");
}

/// Parameter groups in a config file affect the update, and are kept in the run's config.
#[test]
fn parameter_groups_have_separate_rates_and_decays() {
    let place = Place::new();
    let group = "[[solver.groups]]\nmatch = \"backbone.*\"\nlr_factor = 0.0\n";
    let last = "[[solver.groups]]\nmatch = \"*.bias\"\nweight_decay = 0.25\n";
    let extends = "extends = \"micro\"\n";
    place.write("mine.toml", format!("{extends}{FROZEN_RPN}{group}{last}"));
    let shown = place.good("inspect params mine.toml --classes 4");
    let line = |name: &str| shown.lines().find(|line| line.starts_with(name)).expect(name);
    let words = |name: &str| line(name).split_whitespace().map(str::to_string).collect::<Vec<_>>();
    assert_eq!(words("backbone.body.conv1.weight")[5..], ["yes", "0", "0.0001"]);
    assert_eq!(words("backbone.fpn.inner_blocks.0.0.bias")[2..], ["yes", "0", "0.25"]);
    assert_eq!(words("rpn.head.bbox_pred.bias")[2..], ["no"]);
    assert_eq!(words("roi_heads.box_predictor.cls_score.bias")[1..], ["[5]", "yes", "1", "0.25"]);
    assert!(shown.lines().last().is_some_and(|line| line.ends_with(" trained")), "{shown}");
    let value = "value    [{ lr_factor = 0.0, match = \"backbone.*\" }, {";
    for key in ["solver.groups", "solver.groups.lr_factor"] {
        place.shows(&format!("config {key} --in mine.toml"), &[value, "], set in mine.toml\n"]);
    }
    let draws = "inspect params micro --svg a.svg";
    place.bad(draws, BAD_CONFIG, &["inspect params draws nothing"]);

    let few = "--set train.checkpoint_every_steps=1 --set train.steps=3 --set eval.draw_images=0";
    place.good(&format!("train mine.toml --set train.name=micro {few}"));
    for (name, is_still) in [
        ("backbone.body.layer2.0.conv1.weight", true),
        ("roi_heads.box_predictor.cls_score.weight", false),
    ] {
        let at = |step| tensor(&place, step, "model", name).expect(name);
        assert_eq!(at(1) == at(3), is_still, "{name}");
    }
    place.good("train --resume runs/micro --set train.steps=4");
    let resume = "train --resume runs/micro --set train.steps=5";
    place.bad(&format!("{resume} --set solver.groups=[]"), BAD_CONFIG, &["solver.groups: [{"]);
}

#[test]
fn class_weights_apply_by_name() {
    let place = Place::new();
    let few = "--set train.steps=2 --set solver.warmup_steps=0";
    let weighted = "--set loss_weights.classes.circle=8 --set loss_weights.classes.background=0.5";
    place.good(&micro(few));
    place.good(&micro(&format!("{few} {weighted} --set train.name=weighted")));
    let losses = |run: &str, name: &str| place.steps(run)[0][name].as_f64().expect("a number");
    let [plain, ours] = ["runs/micro", "runs/weighted"]
        .map(|run| ["loss_classifier", "loss_objectness"].map(|name| losses(run, name)));
    assert!(plain[0] != ours[0] && plain[1] == ours[1], "{plain:?} {ours:?}");
    let config = place.text("runs/weighted/config.toml");
    assert_has(&config, &["[loss_weights.classes]\nbackground = 0.5\ncircle = 8.0\n"]);
    place.shows(
        "config loss_weights.classes --in runs/weighted/config.toml",
        &["value    { background = 0.5, circle = 8.0 }, set in runs/"],
    );
    let resume = "train --resume runs/weighted --set train.steps=3";
    let change = format!("{resume} --set loss_weights.classes.circle=4");
    place.bad(&change, BAD_CONFIG, &["loss_weights.classes.circle: 8.0 -> 4.0", "--override"]);
    place.good(resume);
}

/// An interrupted and an uninterrupted run repeat the same images.
#[test]
fn images_of_rare_classes_are_repeated() {
    let place = Place::new();
    let few = "--set data.repeat_threshold=1 --set solver.warmup_steps=2";
    let said = place.run(&micro(&format!("{few} --set train.steps=4")));
    let of = said.err.split("an epoch has ").nth(1).expect("a line of the banner");
    let images: usize = of.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    assert!((17..=32).contains(&images), "{}", said.err);
    assert_has(&said.err, &[&format!("batch 2, {} batches per epoch", images.div_ceil(2))]);
    let resume = "train --resume runs/micro --set train.steps=11";
    let words = ["data.repeat_threshold: 1.0 -> 0.0", "--override"];
    place.bad(&format!("{resume} --set data.repeat_threshold=0"), BAD_CONFIG, &words);
    place.good(resume);
    place.good(&micro(&format!("{few} --set train.steps=11 --set train.name=whole")));
    assert!(place.state("runs/micro", 11) == place.state("runs/whole", 11), "other copies");
    place.good(&micro(&format!(
        "{few} --set train.steps=11 --set data.repeat=linear --set train.name=linear"
    )));
    assert!(place.state("runs/linear", 11) != place.state("runs/whole", 11), "the same rule");
}

/// A small set is repeated up to the requested epoch length; each image occurs equally often.
#[test]
fn small_data_set_is_repeated_to_fill_epoch() {
    let place = Place::new();
    place.prints(
        &micro("--set data.min_epoch_images=40 --set train.epochs=1"),
        &["an epoch has 40 images instead of 16: each occurs 2.5 times"],
    );
    assert_eq!(place.report("micro")["steps"], 20);
    // Views are sampled separately for each copy, and each copy is padded to the shape for its
    // size.
    let drawn = "--set data.min_epoch_images=60 --set input.augment.min_sizes=[32,48,64]";
    place.good(&micro(&format!("{drawn} --set train.steps=30 --set train.name=drawn")));
    let enough = place.run(&micro("--set data.min_epoch_images=16 --set train.steps=1"));
    assert!(!enough.err.contains("an epoch has"), "{}", enough.err);
    let words = ["data.min_epoch_images", "would repeat an image 6250 times", "lower it"];
    place.bad(&micro("--set data.min_epoch_images=100000"), BAD_CONFIG, &words);
}

/// The weight averages of a run match the formula, starting from the initial weights; they are
/// evaluated and saved as the checkpoint's weights, and a resumed run is bit-identical.
#[test]
fn ema_weights_are_saved_evaluated_and_resumed() {
    let place = Place::new();
    let few = "--set train.checkpoint_every_steps=1 --set train.keep_checkpoints=9 \
               --set train.eval_at_start=true --set solver.warmup_steps=0";
    let ema =
        "--set train.ema_decay=0.9 --set train.ema_warmup_steps=3 --set model.freeze=['rpn.*']";
    place.good(&micro(&format!("{few} {ema} --set train.steps=4")));
    let state = |step, name: &str| -> Option<Vec<f32>> {
        let bytes = tensor(&place, step, "state", name)?;
        Some(bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    };
    for name in ["backbone.body.layer2.0.conv1.weight", "roi_heads.box_predictor.cls_score.bias"] {
        let at = |step| state(step, name).expect(name);
        let mut expected = at(0);
        for step in 1..=4 {
            let kept = 0.9 * (1.0 - (-(step as f64) / 3.0).exp());
            for (e, p) in expected.iter_mut().zip(at(step)) {
                *e += (1.0 - kept) as f32 * (p - *e);
            }
            let average = state(step, &format!("ema/{name}")).expect(name);
            assert!(average == expected && average != at(step), "{name} after step {step}");
        }
    }
    assert_eq!(state(4, "ema/rpn.head.bbox_pred.bias"), None, "a frozen one is its own average");
    let bias = "roi_heads.box_predictor.cls_score.bias";
    let averages = tensor(&place, 4, "state", &format!("ema/{bias}"));
    assert_eq!(tensor(&place, 4, "model", bias), averages);

    let found = |run: &str| place.text(&format!("runs/{run}/inference/bbox.json"));
    place.good("eval --run runs/micro --checkpoint last --out found");
    assert_eq!(place.text("found/bbox.json"), found("micro"), "others were scored");
    let trained = "--set eval.weights=trained --set train.name=trained";
    place.good(&micro(&format!("{few} {ema} --set train.steps=4 {trained}")));
    assert!(found("trained") != found("micro"), "averages change nothing");
    for (run, weights, same) in [("micro", "trained", "trained"), ("trained", "ema", "micro")] {
        let taken = format!("--run runs/{run} --checkpoint last --set eval.weights={weights}");
        place.good(&format!("eval {taken} --out {weights}"));
        assert_eq!(place.text(&format!("{weights}/bbox.json")), found(same), "{weights}");
    }
    let file = "runs/micro/checkpoints/step_00000004/model.safetensors";
    let other = format!("eval --weights {file} --set eval.weights=trained");
    place.bad(&other, BAD_CONFIG, &["eval.weights", "only one set of weights"]);
    assert!(place.state("runs/trained", 4) == place.state("runs/micro", 4), "scores reach a step");

    place.good(&micro(&format!("{few} {ema} --set train.steps=2 --set train.name=resumed")));
    let resume = "train --resume runs/resumed --set train.steps=4";
    for change in ["none", "0.5"] {
        let words = ["train.ema_decay: 0.9 -> ", "model.weights"];
        place.bad(&format!("{resume} --set train.ema_decay={change}"), BAD_CONFIG, &words);
    }
    place.good(resume);
    assert!(place.state("runs/resumed", 4) == place.state("runs/micro", 4), "other bits");
    assert_eq!(found("resumed"), found("micro"));
}

/// Trains and validates on the same batch, without flips: a step records its losses before its
/// update, so both losses are equal.
#[test]
fn validation_losses_match_step_and_do_not_change_training() {
    let place = Place::new();
    let one = "--set train.steps=3 --set train.batch_size=2 --set data.synthetic.train_images=2 \
               --set eval.train_set=true --set eval.batch_size=2 --set train.eval_at_start=true \
               --set input.flip_probability=0 --set loss_weights.mask=0.5 \
               --set solver.warmup_steps=1";
    place.good(&micro(&format!("{one} --set eval.loss=true --set train.eval_every_steps=1")));
    place.good(&micro(&format!("{one} --set train.name=without")));
    assert!(place.state("runs/micro", 3) == place.state("runs/without", 3), "other bits");
    let all = place.metrics("runs/micro");
    let evaluations: Vec<_> = all.iter().filter(|record| record.get("bbox").is_some()).collect();
    assert_eq!(evaluations.len(), 4, "{all:?}");
    let first = &place.steps("runs/micro")[0];
    let parts = ["", "_classifier", "_box_reg", "_mask", "_objectness", "_rpn_box_reg"];
    for loss in parts.map(|part| format!("loss{part}")) {
        let at = |evaluation: usize| evaluations[evaluation][format!("val_{loss}")].as_f64();
        let (step, before) = (as_number(&first[&loss]), at(0).expect("a loss"));
        assert!((before - step).abs() <= 1e-5 * step, "{loss}: {before} before a step of {step}");
        assert!(at(3).is_some_and(|after| after != before), "{loss}: the weights have no effect");
    }
    assert!(place.metrics("runs/without").iter().all(|record| record.get("val_loss").is_none()));
    let scope = "--set eval.loss=true --set model.rpn.post_nms_scope=batch";
    let uneven = micro(&format!("{scope} --set eval.batch_size=3"));
    place.bad(&uneven, BAD_CONFIG, &["`eval.batch_size` is 3", "such as 4"]);
    let page = place.text("runs/micro/report.html");
    assert!(page.contains("</i>validation</span>"), "no line in the chart of the loss");
}
