//! Training runs of the command: the same bits every time, resumed or not, and whatever ends them.

use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::common::{INTERRUPTED, Place, assert_has, good, micro, with_default_signals};
use crate::tensors;

/// Everything that a run leaves, but for times: weights, momentum, metrics, detections.
fn trace(place: &Place, run: &str, step: u64) -> (Vec<Vec<u8>>, Vec<serde_json::Value>) {
    let checkpoint = format!("{run}/checkpoints/step_{step:08}");
    let files = ["model.safetensors", "state.safetensors", "config.toml", "checkpoint.json"];
    let mut bytes: Vec<_> =
        files.iter().map(|f| place.bytes(&format!("{checkpoint}/{f}"))).collect();
    let results = ["bbox.json", "segm.json"];
    bytes.extend(results.iter().map(|f| place.bytes(&format!("{run}/inference/{f}"))));
    (bytes, place.metrics(run))
}

#[test]
fn the_same_run_gives_the_same_bits_on_any_number_of_threads() {
    let run = |threads: Option<&str>| {
        let place = Place::new();
        let mut command = place.command(&micro(""));
        if let Some(threads) = threads {
            command.env("RAYON_NUM_THREADS", threads);
        }
        good(&mut command);
        trace(&place, "runs/micro", 10)
    };
    let first = run(None);
    assert_eq!(first.1.len(), 11, "ten steps and an evaluation");
    for threads in [None, Some("1"), Some("2"), Some("3")] {
        assert!(first == run(threads), "RAYON_NUM_THREADS {threads:?}: another result");
    }
}

/// `micro`'s tensors are too small to be shared out by every op; those of `tiny` are not.
#[test]
fn a_larger_model_gives_the_same_bits_on_any_number_of_threads() {
    let run = |threads: &str| {
        let place = Place::new();
        let arguments = "train tiny --set data.synthetic.train_images=8 --set train.steps=2 \
                         --set data.synthetic.val_images=3 --set eval.draw_images=0";
        good(place.command(arguments).env("RAYON_NUM_THREADS", threads));
        trace(&place, "runs/tiny", 2)
    };
    assert!(run("1") == run("4"), "another result");
}

#[test]
fn another_seed_gives_another_run() {
    let place = Place::trained("--set train.steps=2");
    place.good(&micro("--set train.steps=2 --set train.seed=1"));
    assert_ne!(place.state("runs/micro", 2), place.state("runs/micro-2", 2));
}

#[test]
fn a_resumed_run_equals_an_uninterrupted_one() {
    let place = Place::trained("--set train.name=whole");
    place.good(&micro("--set train.name=parts --set train.steps=6"));
    assert_eq!(place.text("runs/parts/last_checkpoint").trim(), "checkpoints/step_00000006");
    place.good("train --resume runs/parts --set train.steps=10");
    assert_eq!(place.text("runs/parts/last_checkpoint").trim(), "checkpoints/step_00000010");
    assert_eq!(place.state("runs/whole", 10), place.state("runs/parts", 10));
    assert_eq!(place.steps("runs/whole"), place.steps("runs/parts"));
    let report = |run: &str| place.report(run);
    assert_eq!(report("whole")["segm"], report("parts")["segm"]);
    assert_eq!(report("parts")["steps"], 10);
}

/// A process that dies writes no checkpoint: the steps since the last one come again.
#[test]
fn steps_lost_in_a_crash_are_made_again_and_recorded_once() {
    let place = Place::trained("--set train.checkpoint_every_steps=4");
    let (state, metrics) = (place.state("runs/micro", 10), place.metrics("runs/micro"));
    // As it was after a crash in step 7 or 8, while a checkpoint was being written.
    fs::remove_dir_all(place.join("runs/micro/checkpoints/step_00000010")).expect("it is there");
    fs::remove_dir_all(place.join("runs/micro/checkpoints/step_00000008")).expect("it is there");
    place.write("runs/micro/checkpoints/.step_00000008.tmp/model.safetensors", "half a file");
    place.write("runs/micro/last_checkpoint", "checkpoints/step_00000004\n");
    place.good("train --resume runs/micro");
    assert_eq!(place.state("runs/micro", 10), state);
    assert_eq!(place.metrics("runs/micro"), metrics);
    let left = place.names("runs/micro/checkpoints");
    assert_eq!(left, ["step_00000004", "step_00000008", "step_00000010"]);
}

#[test]
fn only_the_newest_checkpoints_are_kept() {
    let place = Place::new();
    let every_second = "--set train.checkpoint_every_steps=2 --set train.keep_checkpoints=2";
    place.good(&micro(every_second));
    assert_eq!(place.names("runs/micro/checkpoints"), ["step_00000008", "step_00000010"]);
    // Taken up again from below: what it saves is the newest, whatever its number.
    place.write("runs/micro/last_checkpoint", "checkpoints/step_00000008\n");
    let from_8 = "train --resume runs/micro --set train.steps=9 --set train.keep_checkpoints=1";
    place.good(from_8);
    assert_eq!(place.names("runs/micro/checkpoints"), ["step_00000009"]);
    assert_eq!(place.text("runs/micro/last_checkpoint").trim(), "checkpoints/step_00000009");
}

/// A run that is asked to stop, by each signal that does so.
#[test]
fn a_signal_saves_and_the_resumed_run_ends_bit_exact() {
    for signal in ["TERM", "USR1", "INT"] {
        let place = Place::new();
        let arguments = micro("--set train.steps=1000000 --set train.log_every_steps=0");
        let mut command = with_default_signals(&place.command(&arguments));
        let mut child = command.stderr(Stdio::null()).spawn().expect("the command starts");
        wait_for_steps(&place, &mut child);
        let pid = child.id().to_string();
        let sent = std::process::Command::new("kill").args(["-s", signal, &pid]).status();
        assert!(sent.expect("kill runs").success());
        let code = child.wait().expect("the command ends").code();
        assert_eq!(code, Some(INTERRUPTED), "SIG{signal}");
        let last = place.text("runs/micro/last_checkpoint");
        let step: u64 =
            last.trim().trim_start_matches("checkpoints/step_").parse().expect("a step");
        assert_eq!(place.steps("runs/micro").len() as u64, step);
        let report = place.report("micro");
        assert_eq!((&report["state"], &report["steps"]), (&"interrupted".into(), &step.into()));
        assert!(place.text("runs/micro/report.html").contains("interrupted by a signal"));

        let total = step + 3;
        place.good(&format!("train --resume runs/micro --set train.steps={total}"));
        place.good(&micro(&format!("--set train.steps={total} --set train.name=whole")));
        assert_eq!(place.state("runs/micro", total), place.state("runs/whole", total));
        assert_eq!(place.steps("runs/micro"), place.steps("runs/whole"), "SIG{signal}");
    }
}

/// Waits until a few steps are made; fails if the command ends or nothing happens.
fn wait_for_steps(place: &Place, child: &mut Child) {
    let since = Instant::now();
    let metrics = place.join("runs/micro/metrics.jsonl");
    loop {
        assert!(child.try_wait().expect("a child of ours").is_none(), "it ended by itself");
        assert!(since.elapsed() < Duration::from_secs(60), "no step in a minute");
        let lines = fs::read_to_string(&metrics).map_or(0, |text| text.lines().count());
        if lines >= 3 {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The detections of an evaluation do not depend on how its images are put into batches, nor on
/// the places that the last one leaves empty.
#[test]
fn detections_do_not_depend_on_the_evaluation_batch() {
    let place = Place::new();
    for batch in [1, 3, 8] {
        let name = format!("--set eval.batch_size={batch} --set train.name=by{batch}");
        place.good(&micro(&format!("{name} --set train.steps=40")));
    }
    for file in ["bbox.json", "segm.json"] {
        let of = |batch: usize| place.text(&format!("runs/by{batch}/inference/{file}"));
        assert!(of(1).len() > 100, "it holds detections");
        assert!(of(1) == of(3) && of(1) == of(8), "{file}");
    }
}

/// Weights of another run, of a classifier's names, and of nothing that fits.
#[test]
fn a_run_begins_with_the_weights_that_its_config_names() {
    let place = Place::trained("--set train.steps=3");
    let model =
        |run: &str, step: u64| format!("runs/{run}/checkpoints/step_{step:08}/model.safetensors");
    let first = model("micro", 3);
    let begin = |key: &str, file: &str, name: &str| {
        let next = "--set train.steps=1 --set solver.learning_rate=1e-30";
        let begun = micro(&format!("{next} --set model.{key}={file} --set train.name={name}"));
        place.told(&begun, &[]).err
    };
    let said = begin("weights", &first, "again");
    let is_same = place.bytes(&model("again", 1)) == place.bytes(&first);
    assert!(is_same, "so small a rate changes nothing");
    assert_has(&said, &[" parameters loaded, 0 initialised"]);
    // The backbone only, named as torchvision's classifiers are.
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
    let first = all.into_values().next().expect("a tensor");
    tensors::write(&place, "none.safetensors", &[("x".to_string(), first)].into(), None);
    let none = "--set model.backbone.weights=none.safetensors";
    place.bad(
        &micro(none),
        1,
        &["none.safetensors", "none of its tensors has the name and the shape of a parameter"],
    );
}
