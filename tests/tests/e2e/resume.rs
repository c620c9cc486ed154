//! Resumed runs: the state that is kept, the changes that are rejected, and the message when losses
//! become non-finite.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{BAD_CONFIG, DIVERGED, FAILED, Place, as_number, micro};
use serde_json::json;

#[test]
fn resume_with_different_training_is_rejected() {
    let place = Place::trained("--set train.steps=4");
    let resume = |more: &str| format!("train --resume runs/micro --set train.steps=6 {more}");
    let before = place.state("runs/micro", 4);
    place.bad(&resume("--set train.seed=7"), BAD_CONFIG, &["train.seed", "--override"]);
    // A different optimizer has different state, so the run cannot be resumed even if the change is
    // accepted.
    let other = resume("--override --set solver.optimizer=novograd");
    place.bad(&other, BAD_CONFIG, &["solver.optimizer: \"sgd\" -> \"novograd\"", "model.weights"]);
    let weights = resume("--override --set model.weights=nothing.safetensors");
    place.bad(&weights, BAD_CONFIG, &["model.weights", "begin a new run"]);
    let fewer = "train --resume runs/micro --set train.steps=3";
    place.bad(fewer, BAD_CONFIG, &["train.steps is 3", "step 4"]);
    // The config in the run directory is also compared.
    let config = place.text("runs/micro/config.toml");
    place.write("runs/micro/config.toml", config.replace("momentum = 0.9", "momentum = 0.5"));
    place.bad(&resume(""), BAD_CONFIG, &["solver.momentum: 0.9 -> 0.5"]);
    assert_eq!(place.names("runs/micro/checkpoints"), ["step_00000004"]);
    assert!(place.state("runs/micro", 4) == before, "nothing was touched");
    place.good(&resume("--override"));
    let meta = place.json("runs/micro/checkpoints/step_00000006/checkpoint.json");
    assert_eq!(meta["overrides"][0]["after_step"], 4);
    assert_eq!(meta["overrides"][0]["change"]["key"], "solver.momentum");
}

/// If the run directory was removed, evaluations cannot write their results, and report this.
#[test]
fn removed_run_directory_is_not_recreated() {
    for away in ["rm -r runs/x", "mv runs/x moved"] {
        let place = Place::new();
        let endless = "--set train.name=x --set train.steps=200 --set train.eval_every_steps=20";
        let mut run =
            place.command(&micro(&format!("{endless} --set data.synthetic.val_images=2")));
        let run = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
        while !place.join("runs/x/best.json").exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        // The run may write a new file between two scans of rm.
        while place.join("runs/x").exists() {
            let mut shell = Command::new("sh");
            let moved = shell.args(["-c", away]).current_dir(place.path()).output();
            moved.expect("a shell");
        }
        let ended = run.wait_with_output().expect("it ends");
        let err = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(FAILED), "{err}");
        let told = err.find("runs/x: the run directory is gone").expect("a warning");
        assert!(told < err.find("step 200").expect("the last step"), "reported at once: {err}");
        assert!(!place.join("runs/x").exists(), "recreated after {away}");
    }
}

#[test]
fn run_without_config_resumes_with_checkpoint_config() {
    let place = Place::trained("--set train.steps=4 --set solver.learning_rate=0.01");
    let config = place.text("runs/micro/config.toml");
    fs::remove_file(place.join("runs/micro/config.toml")).expect("it is there");
    place.good("train --resume runs/micro --set train.steps=6");
    assert_eq!(place.text("runs/micro/config.toml"), config.replace("steps = 4", "steps = 6"));
    fs::create_dir(place.join("empty")).expect("a folder");
    place.bad("train --resume empty", BAD_CONFIG, &["neither config.toml nor last_checkpoint"]);
}

/// A different training store is rejected, even if only its pixels or masks differ; the same store
/// at a different path is accepted.
#[test]
fn changed_training_data_is_rejected_on_resume() {
    let place = Place::new();
    place.shapes(8, "set");
    place.good("prep --synthetic shapes --count 8 --size 64 --seed 1 --out other");
    let sets = "--set data.synthetic=none --set data.val_store=set/store";
    place.good(&micro(&format!("{sets} --set data.train_store=set/store --set train.steps=2")));
    let resume = "train --resume runs/micro --set train.steps=3";
    place.bad(
        &format!("{resume} --set data.train_store=other/store"),
        BAD_CONFIG,
        &["training data", "--override"],
    );
    // Equal annotations with different pixels, and equal pixels with different masks.
    let prep = "prep --images other/images --annotations set/annotations.json --out pixels";
    place.good(prep);
    let mut annotations = place.json("set/annotations.json");
    for object in annotations["annotations"].as_array_mut().expect("objects") {
        let x = as_number(&object["bbox"][0]) as f32;
        let y = as_number(&object["bbox"][1]) as f32;
        object["segmentation"] = json!([[x, y, x + 5.0, y, x, y + 5.0]]);
    }
    place.write("masks.json", annotations.to_string());
    place.good("prep --images set/images --annotations masks.json --out masks");
    for changed in ["pixels", "masks"] {
        let resume = format!("{resume} --set data.train_store={changed}");
        place.bad(&resume, BAD_CONFIG, &["training data", "--override"]);
    }
    fs::rename(place.join("set/store"), place.join("moved")).expect("a rename");
    let moved = "--set data.train_store=moved --set data.val_store=moved";
    place.good(&format!("{resume} {moved}"));
}

#[test]
fn best_checkpoint_is_kept_and_patience_ends_run() {
    let place = Place::new();
    // Start from weights that detect objects, since patience counts from the first score of at
    // least 0.001.
    place.good(&micro("--set train.steps=300 --set train.name=first"));
    let often = "--init runs/first --set train.eval_every_steps=2 --set train.keep_checkpoints=1";
    // The learning rate is too small to change the weights, so no score is better than the first.
    let still = "--set solver.learning_rate=1e-30 --set train.steps=100 --set train.patience=3";
    place.good(&micro(&format!("{often} {still}")));
    let best = place.json("runs/micro/best.json");
    assert_eq!((best["step"].as_u64(), best["without_improvement"].as_u64()), (Some(2), Some(3)));
    assert_eq!(best["checkpoint"], "checkpoints/step_00000002");
    assert_eq!(place.names("runs/micro/checkpoints"), ["step_00000002", "step_00000008"]);
    assert_eq!(place.report("micro")["steps"], 8);
    place.good("train --resume runs/micro");
    assert_eq!(place.report("micro")["state"], "no_improvement");
    assert_eq!(place.report("micro")["steps"], 8, "patience is still exhausted");
    place.good("train --resume runs/micro --set train.patience=4");
    assert_eq!(place.report("micro")["steps"], 10);
}

#[test]
fn user_files_next_to_checkpoints_are_kept() {
    let place = Place::trained("--set train.steps=2 --set train.keep_checkpoints=1");
    let at = |name: &str| format!("runs/micro/checkpoints/{name}");
    let copy = place.join(&at("step_00000002_good"));
    fs::rename(place.join(&at("step_00000002")), copy).expect("a rename");
    place.write(&at("step_00000001/notes"), "mine");
    place.write(&at("step_00000000"), "a file");
    place.write(&at(".step_mine.tmp/notes"), "mine");
    place.write("runs/micro/last_checkpoint", "checkpoints/step_00000002_good\n");
    place.good("train --resume runs/micro --set train.steps=4");
    let kept = ["step_00000000", "step_00000001", "step_00000002_good", "step_00000004"];
    let names = place.names("runs/micro/checkpoints");
    assert_eq!(names, [&[".step_mine.tmp"][..], &kept].concat());
}

/// Good checkpoints are not replaced by non-finite ones, and the failed step can be replayed.
#[test]
fn non_finite_loss_saves_replay_instead_of_checkpoint() {
    let wild = "--set solver.learning_rate=1e6 --set solver.clip_norm=0 \
                --set solver.warmup_steps=0 --set train.checkpoint_every_steps=1 \
                --set train.eval_every_steps=2";
    // The run ends after ten bad steps, after one bad step, and at its regular end if it is too
    // short for ten bad steps.
    for more in [
        "--set train.steps=1000",
        "--set train.steps=1000 --set solver.dynamic_loss_scale=false",
        "--set train.steps=4",
        "--set train.steps=1000 --set train.micro_steps=2 --set train.images_per_group=1",
    ] {
        let place = Place::new();
        let words = ["step 2: loss_classifier is NaN", "images", "first non-finite", "replay"];
        let words = [&words[..], &["learning_rate"]].concat();
        place.bad(&micro(&format!("{wild} {more}")), DIVERGED, &words);
        assert_eq!(place.names("runs/micro/checkpoints"), ["step_00000001"], "{more}");
        assert!(place.steps("runs/micro").len() < 50, "it went on for long");
        assert!(!place.join("runs/micro/best.json").exists(), "no score of a state that is gone");
        let replay = "runs/micro/replay/step_00000002.safetensors";
        place.shows(
            &format!("replay {replay}"),
            &["step 2 on cpu, images ", "first non-finite: `", "again:  loss_classifier NaN"],
        );
        let sound = place.bytes(replay);
        for at in [sound.len() / 3, sound.len() / 2, sound.len() - 1] {
            let mut bytes = sound.clone();
            bytes[at] ^= 1;
            place.write("bad", bytes);
            place.bad("replay bad", FAILED, &["checksum is wrong"]);
        }
    }
}
