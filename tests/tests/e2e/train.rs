//! Training runs are bit-identical for any number of threads, keep the configured checkpoints, and
//! start from configured weights.

use crate::common::{Place, assert_has, good, micro};
use crate::tensors;

/// All results that a run writes, without times: weights, momentum, metrics, detections.
fn trace(place: &Place, run: &str, step: u64) -> (Vec<Vec<u8>>, Vec<serde_json::Value>) {
    let checkpoint = format!("{run}/checkpoints/step_{step:08}");
    let files = ["model.safetensors", "state.safetensors", "config.toml", "checkpoint.json"];
    let mut bytes: Vec<_> =
        files.iter().map(|f| place.bytes(&format!("{checkpoint}/{f}"))).collect();
    let results = ["bbox.json", "segm.json"];
    bytes.extend(results.iter().map(|f| place.bytes(&format!("{run}/inference/{f}"))));
    (bytes, place.metrics(run))
}

/// `micro`'s tensors are too small for every op to use several threads; `tiny`'s are not.
#[test]
fn run_is_bit_identical_for_any_thread_count() {
    let tiny = "train tiny --set data.synthetic.train_images=8 --set train.steps=2 \
                --set data.synthetic.val_images=3 --set eval.draw_images=0";
    let micro = micro("");
    for (arguments, run, steps, threads) in
        [(micro.as_str(), "runs/micro", 10, &["1", "2", "3"][..]), (tiny, "runs/tiny", 2, &["4"])]
    {
        let of = |threads: Option<&str>| {
            let place = Place::new();
            let mut command = place.command(arguments);
            command.envs(threads.map(|threads| ("RAYON_NUM_THREADS", threads)));
            good(&mut command);
            trace(&place, run, steps)
        };
        let first = of(None);
        assert_eq!(first.1.len() as u64, steps + 1, "the steps and an evaluation");
        for threads in [None].into_iter().chain(threads.iter().copied().map(Some)) {
            assert!(first == of(threads), "{run}, {threads:?} threads: another result");
        }
    }
}

#[test]
fn checkpoints_follow_interval_and_newest_are_kept() {
    let place = Place::new();
    // 16 images, 2 per step: 8 steps per epoch.
    for (name, set, saved) in [
        ("default", "", &["step_00000008", "step_00000009"][..]),
        ("last", "--set train.checkpoint_every_epochs=0", &["step_00000009"]),
    ] {
        place.good(&micro(&format!("--set train.steps=9 --set train.name={name} {set}")));
        assert_eq!(place.names(&format!("runs/{name}/checkpoints")), saved);
    }
    let every_second = "--set train.checkpoint_every_steps=2 --set train.keep_checkpoints=2";
    place.good(&micro(every_second));
    assert_eq!(place.names("runs/micro/checkpoints"), ["step_00000008", "step_00000010"]);
    // After resuming from an earlier step, the checkpoint saved last is the newest, regardless of
    // its number.
    place.write("runs/micro/last_checkpoint", "checkpoints/step_00000008\n");
    let from_8 = "train --resume runs/micro --set train.steps=9 --set train.keep_checkpoints=1";
    place.good(from_8);
    assert_eq!(place.names("runs/micro/checkpoints"), ["step_00000009"]);
    assert_eq!(place.text("runs/micro/last_checkpoint").trim(), "checkpoints/step_00000009");
}

/// Starts from the weights of a different run, and from weights with the names of a classifier.
#[test]
fn run_starts_from_configured_weights() {
    let place = Place::trained("--set train.steps=3");
    let model =
        |run: &str, step: u64| format!("runs/{run}/checkpoints/step_{step:08}/model.safetensors");
    let first = model("micro", 3);
    let begin = |key: &str, file: &str, name: &str| {
        let next = "--set train.steps=1 --set solver.learning_rate=1e-30";
        let begun = micro(&format!("{next} --set model.{key}={file} --set train.name={name}"));
        place.prints(&begun, &[]).err
    };
    let said = begin("weights", &first, "again");
    let is_same = place.bytes(&model("again", 1)) == place.bytes(&first);
    assert!(is_same, "so small a rate changes nothing");
    assert_has(&said, &[" parameters loaded, 0 initialised"]);
    // The backbone only, under the names of torchvision's classifiers.
    let all = tensors::read(&place, &first);
    let body = tensors::body(&all);
    tensors::write(&place, "body.safetensors", &body, None);
    let said = begin("backbone.weights", "body.safetensors", "body");
    assert_has(&said, &[&format!("{} parameters loaded, ", body.len())]);
    let begun = tensors::read(&place, &model("body", 1));
    for (name, tensor) in &all {
        let norm = name.contains(".bn") || name.ends_with(".bias");
        assert!((begun[name] == *tensor) == name.starts_with("backbone.body.") || norm, "{name}");
    }
}
