//! User mistakes give a one-line message with the location, an exit code, and no partial output.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{BAD_CONFIG, BAD_DATA, FAILED, Place, as_count, as_list, bad, micro, said};

/// Exit code of a command line that does not parse.
const USAGE: i32 = 2;

#[test]
fn invalid_configs_print_one_line_error() {
    let place = Place::new();
    for (set, words) in [
        ("solver.learning_rat=1", &["--set", "did you mean `solver.learning_rate`?"][..]),
        (
            "data.synthetic=none --set data.train_store=gs://data/store",
            &["gs://data/store", "must be a local path or s3://BUCKET/KEY"],
        ),
        ("model.num_classes=2", &["model.num_classes is 2", "4 classes"]),
        ("data.max_images=0 --set data.ids=[77]", &["image 77"]),
        (
            "input.mean=[123.7,116.3,103.5]",
            &["`input.mean` is [123.7, 116.3, 103.5], but pixels are between 0 and 1"],
        ),
    ] {
        place.bad(&micro(&format!("--set {set}")), BAD_CONFIG, words);
    }
    place.bad("train micr", BAD_CONFIG, &["micr", "the presets are", "micro"]);
    place.bad("train mlperf_r50", BAD_CONFIG, &["has no train data", "data.train_store"]);
    let kept: Vec<String> = place.names("runs").into_iter().filter(|n| n != "data").collect();
    assert!(kept.is_empty(), "runs that never began left {kept:?}");
}

#[test]
fn invalid_command_lines_exit_with_usage_error() {
    let place = Place::new();
    for (arguments, word) in [
        ("", "Usage"),
        ("train", "<CONFIG>"),
        ("train micro --resume runs/micro", "leave out micro, or give --resume auto"),
        ("train --resume auto", "needs the config of the run"),
        ("train micro --target box=1.5", "not between 0 and 1"),
        ("train micro --target masks=0.5", "not box, mask or keypoint"),
        ("train micro --target box=0.3,box=0.4", "box is given twice"),
        ("eval --gt a.json", "--detections"),
        ("prep --images a --out b", "--annotations"),
        ("eval --gt a.json --detections b.json --set train.steps=1", "--set"),
    ] {
        let said = place.run(arguments);
        assert_eq!(said.code, USAGE, "{arguments}: {}", said.err);
        assert!(said.err.contains(word), "{arguments}: {}", said.err);
    }
    place.bad("prep --out b", BAD_CONFIG, &["--images and --annotations, or --synthetic"]);
    assert!(place.names(".").is_empty(), "nothing was written");
}

#[test]
fn invalid_thread_counts_print_one_line_error() {
    let place = Place::new();
    let doctor = |threads: &str| said(place.command("doctor").env("RAYON_NUM_THREADS", threads));
    assert!(doctor("1").out.contains(", 1 thread\n"), "{}", doctor("1").out);
    assert!(doctor("3").out.contains(", 3 threads\n"), "{}", doctor("3").out);
    assert_eq!((doctor("").code, doctor("0").code), (0, 0));
    for wrong in ["abc", "-1", "1.5", "1025", "1000000"] {
        let words = format!("RAYON_NUM_THREADS is `{wrong}`; it must be an integer from 1 to 1024");
        let mut command = place.command("doctor");
        bad(command.env("RAYON_NUM_THREADS", wrong), BAD_CONFIG, &[&words]);
    }
}

#[test]
fn pipes_are_rejected_as_input_files() {
    let place = Place::new();
    let made = Command::new("mkfifo").arg(place.join("pipe")).status();
    assert!(made.expect("mkfifo runs").success());
    place.refuses(
        FAILED,
        &[
            ("replay pipe", &["pipe: it is not a regular file"]),
            ("replay .", &[".: it is not a regular file"]),
        ],
    );
    place.write("gt.json", r#"{"images": [], "annotations": [], "categories": []}"#);
    let zeros = Path::new("/dev/zero").exists().then_some("/dev/zero");
    for odd in ["pipe"].into_iter().chain(zeros) {
        for (arguments, code) in [
            (format!("prep --images . --annotations {odd} --out s"), BAD_DATA),
            (format!("eval --gt {odd} --detections gt.json"), BAD_DATA),
            (format!("eval --gt gt.json --detections {odd}"), BAD_DATA),
            (format!("mlperf score {odd}"), FAILED),
            (format!("mlperf curve {odd}"), FAILED),
        ] {
            place.bad(&arguments, code, &[odd, "it is not a regular file"]);
        }
    }
}

#[test]
fn invalid_data_prints_one_line_error() {
    let place = Place::new();
    let none = "--set data.synthetic=none";
    let store = format!("{none} --set data.train_store=no.store --set data.val_store=no.store");
    place.bad(&micro(&store), BAD_CONFIG, &["data.train_store", "there is no store", "no.store"]);
    let files = format!("{none} --set data.train_images=no --set data.train_annotations=no.json");
    place.bad(&micro(&files), BAD_DATA, &["no.json"]);
    place.write("list.json", "[1, 2]");
    place.refuses(
        BAD_DATA,
        &[
            ("prep --images . --annotations list.json --out s", &["list.json"]),
            ("eval --gt no.json --detections no.json", &["no.json"]),
            ("prep --synthetic shapes --count 0 --out s", &["--count", "from 1 to"]),
        ],
    );
    assert!(!place.join("s").exists());
    assert!(place.names("runs").iter().all(|n| n == "data"), "a run directory was left behind");
}

#[test]
fn invalid_prediction_inputs_print_one_line_error() {
    let place = Place::new();
    place.write("text/1.jpg", "no picture");
    place.write("empty/readme.txt", "");
    place.good(&micro("--set train.steps=1"));
    let predict = |what: &str| format!("predict --run runs/micro --out out {what}");
    place.bad(&predict("text/1.jpg"), BAD_DATA, &["text/1.jpg", "neither JPEG nor PNG"]);
    let mut bomb = b"\x89PNG\r\n\x1a\n\0\0\0\x0DIHDR".to_vec();
    bomb.extend([0, 1, 0x86, 0xA0, 0, 1, 0x86, 0xA0, 8, 2, 0, 0, 0]);
    place.write("bomb/1.png", bomb);
    place.bad(&predict("bomb/1.png"), BAD_DATA, &["bomb/1.png", "100000x100000"]);
    place.refuses(
        BAD_CONFIG,
        &[
            (&predict("nowhere"), &["nowhere does not exist"]),
            (&predict("empty"), &["no image file"]),
        ],
    );
    place.write("file", "");
    let into_file = "predict --run runs/micro --out file text";
    place.bad(into_file, BAD_CONFIG, &["file is a file"]);
    place.bad("predict --run empty --out out text", FAILED, &["empty", "last_checkpoint"]);
}

#[test]
fn invalid_run_directory_prints_one_line_error() {
    let place = Place::new();
    place.write("file", "");
    place.bad(&micro("--set train.run_dir=file"), BAD_CONFIG, &["file is a file"]);
    place.bad(&micro("--set train.run_dir=/proc/none"), FAILED, &["/proc/none"]);
    place.refuses(
        BAD_CONFIG,
        &[
            (&micro("--set train.name=a/b"), &["train.name", "slash"]),
            ("train --resume nowhere", &["nowhere", "not a run directory"]),
        ],
    );
}

#[test]
fn invalid_checkpoints_print_one_line_error() {
    let place = Place::trained("--set train.checkpoint_every_steps=5");
    let resume = "train --resume runs/micro";
    let wider = format!("{resume} --set model.fpn.channels=16");
    place.bad(&wider, BAD_CONFIG, &["model.fpn.channels: 8 -> 16", "--override"]);
    let accepted = format!("{wider} --override");
    place.bad(&accepted, FAILED, &["step_00000010", "shape [8] in it, but [16] with"]);
    let state = "runs/micro/checkpoints/step_00000010/state.safetensors";
    let bytes = place.bytes(state);
    place.flip(state);
    place.bad(resume, FAILED, &["state.safetensors is damaged", "last_checkpoint"]);
    place.write(state, &bytes[..bytes.len() / 2]);
    place.bad(resume, FAILED, &["state.safetensors is damaged"]);
    fs::remove_file(place.join(state)).expect("it is there");
    place.bad(resume, FAILED, &["state.safetensors", "No such file"]);
    let last = "runs/micro/checkpoints/step_00000010";
    let none = "not a replay file that a training run wrote";
    let weights = format!("replay {last}/model.safetensors");
    place.refuses(FAILED, &[("replay nothing", &["nothing"]), (&weights, &[none])]);
    fs::rename(place.join(last), place.join("runs/micro/checkpoints/step_00000009"))
        .expect("a rename");
    place.write("runs/micro/last_checkpoint", "checkpoints/step_00000009\n");
    place.write("runs/micro/checkpoints/step_00000009/state.safetensors", bytes);
    place.bad(resume, FAILED, &["belongs to step 10", "step_00000009"]);
    // Apply the fix that the message suggests.
    place.write("runs/micro/last_checkpoint", "checkpoints/step_00000005\n");
    place.good(resume);
    place.write("runs/micro/last_checkpoint", "");
    place.bad(resume, FAILED, &["last_checkpoint: it is empty; to use an earlier checkpoint"]);
    fs::remove_file(place.join("runs/micro/last_checkpoint")).expect("it is there");
    place.bad(resume, FAILED, &["there is no last_checkpoint"]);
}

/// If the same shapes had different names, labels would silently refer to wrong classes.
#[test]
fn data_with_other_classes_is_rejected() {
    let place = Place::new();
    place.shapes(8, "set");
    let renamed = place.text("set/annotations.json").replace("\"square\"", "\"cube\"");
    assert!(renamed.contains("\"cube\""), "the class was renamed");
    place.write("renamed.json", renamed);
    place.good("prep --images set/images --annotations renamed.json --out renamed.store");
    place.good(&micro("--set train.steps=2"));
    let renamed = "--set data.synthetic=none --set data.val_store=renamed.store";
    let train_too = format!("{renamed} --set data.train_store=renamed.store");
    let resume = format!("train --resume runs/micro --set train.steps=4 {train_too}");
    place.bad(&resume, FAILED, &["1 square (id 1)", "renamed.store", "1 cube (id 1)"]);
    let mixed = format!("train micro {renamed} --set data.train_store=set/store");
    place.bad(&mixed, BAD_CONFIG, &["categories that set/store lacks", "renamed.store"]);
    let eval = format!("eval --run runs/micro {renamed}");
    place.bad(&eval, BAD_CONFIG, &["renamed.store", "different classes"]);
}

/// A model may have more classes than its data; a run reports this, as well as config keys without
/// effect.
#[test]
fn more_classes_than_data_are_accepted_with_warning() {
    let place = Place::new();
    let idle = "--set train.patience=1 --set solver.milestones=[5] \
                --set solver.lars.trust_coefficient=0.5";
    let train = "train micro --set model.num_classes=9 --set train.steps=2";
    let said = place.prints(&format!("{train} {idle} --set train.tuning=h100.json"), &[]);
    let removed = "warning: train.tuning (--set) is ignored: ";
    assert_eq!(said.err.matches(removed).count(), 1, "{}", said.err);
    let log = place.text("runs/micro/log.txt");
    for (text, words) in [
        (&said.err, "warning: model.num_classes is 9, but the dataset has 4 classes"),
        (&log, "2 steps (0.2 epochs), warm-up of 1\n"),
        (&log, "warning: train.patience cannot end the run early"),
        (&log, "warning: 1 of the 1 solver.milestones are at or beyond train.steps = 2"),
        (
            &log,
            "warning: solver.lars.trust_coefficient = 0.5 has no effect with solver.optimizer = \"sgd\"",
        ),
    ] {
        assert!(text.contains(words), "{words} is not in\n{text}");
    }
    place.good("eval --run runs/micro");
    place.good(
        "predict --run runs/micro --out p --min-score 0 runs/data/micro/val-8x64-seed0/images",
    );
    let results = place.json("p/predictions.json");
    let results = as_list(&results);
    assert!(!results.is_empty(), "it found something");
    assert!(results.iter().all(|r| (1..=4).contains(&as_count(&r["category_id"]))));
}
