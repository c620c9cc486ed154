//! `onegraph mlperf run`: its logs are checked by MLPerf's official checker if it is installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::driver::Gpus;
use crate::common::ranks::{Ended, Running};
use crate::common::{
    BAD_CONFIG, BAD_DATA, DIVERGED, Place, assert_has, has_namespaces, is_missing, stores,
};
use serde_json::Value;

/// MLPerf's rules with a model and images that a CPU trains in seconds: 3 steps per epoch.
const SHORT: &str = r#"
extends = "mlperf_8"

[model.backbone]
kind = "small"
stage_channels = [8, 8, 16, 16]
norm = "group_norm"
norm_eps = 1e-5
norm_groups = 4
frozen_stages = 0

[model.anchors]
sizes = [8, 16, 32, 64]

[model.fpn]
channels = 8

[model.box_head]
hidden = [16, 16]

[model.mask_head]
channels = [8]
deconv_channels = 8

[input]
min_size = 64
max_size = 64

[data.synthetic]
kind = "shapes"
train_images = 20
val_images = 6
image_size = 64
dir = "data"

[train]
steps = 6
"#;

const RUN: &str = "mlperf run short.toml --out out --system box --org ours --seed 7 --keep-caches \
                   --device cpu";

/// The log of a run.
fn log(out: &str, run: usize) -> String {
    format!("{out}/results/box/maskrcnn/result_{run}.txt")
}

fn place() -> Place {
    let place = Place::new();
    place.write("short.toml", SHORT);
    place
}

/// The events of a log: key, value, metadata.
fn events(log: &str) -> Vec<(String, Value, Value)> {
    let lines = log.lines().filter_map(|line| line.strip_prefix(":::MLLOG "));
    let event = |line| {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
        let key = event["key"].as_str().expect("a key").to_string();
        (key, event["value"].clone(), event["metadata"].clone())
    };
    lines.map(event).collect()
}

/// Index of the first event with key `key`.
fn at(events: &[(String, Value, Value)], key: &str) -> usize {
    let found = events.iter().position(|(theirs, ..)| theirs == key);
    found.unwrap_or_else(|| panic!("no {key}"))
}

/// The Python interpreter for which `.ci/run` has installed `mlperf-logging`.
fn checker() -> Option<PathBuf> {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/mlperf/bin/python");
    python.is_file().then_some(python)
}

/// Runs a checker of `mlperf-logging`; returns its output, and true if it passes.
fn check(place: &Place, module: &str, words: &[&str]) -> Option<(String, bool)> {
    let Some(python) = checker() else {
        println!("SKIPPED: mlperf-logging is not installed in target/mlperf (see CONTRIBUTING.md)");
        return None;
    };
    let mut command = Command::new(python);
    command.args(["-m", &format!("mlperf_logging.{module}")]).args(words);
    let output = command.current_dir(place.path()).output().expect("python runs");
    let said = [output.stdout, output.stderr].concat();
    Some((String::from_utf8_lossy(&said).into_owned(), output.status.success()))
}

#[test]
fn shortened_timed_run_lacks_only_accuracy() {
    let place = place();
    let said = place
        .prints(RUN, &["model.fpn.channels is 8; the reference has 256", "Data Representation:"]);
    assert_has(&said.out, &["aborted", "2 epochs  48 images"]);
    let events = events(&place.text(&log("out", 0)));
    let order = [
        "cache_clear",
        "submission_benchmark",
        "init_start",
        "seed",
        "global_batch_size",
        "opt_base_learning_rate",
        "init_stop",
        "run_start",
        "epoch_start",
        "epoch_stop",
        "eval_start",
        "eval_stop",
        "eval_accuracy",
        "run_stop",
    ];
    let places = order.map(|key| at(&events, key));
    assert!(places.is_sorted(), "{events:?}");
    let value = |key: &str| &events[at(&events, key)].1;
    assert_eq!((value("cache_clear"), value("seed")), (&false.into(), &7.into()));
    assert_eq!(value("submission_division"), "open", "the model is another");
    assert_eq!(value("opt_learning_rate_warmup_factor"), &Value::from(2e-5));
    assert_eq!((value("train_samples"), value("eval_samples")), (&20.into(), &6.into()));
    let epochs = events.iter().filter(|(key, ..)| key == "eval_accuracy");
    let epochs: Vec<_> = epochs.map(|(.., metadata)| metadata["epoch_num"].as_u64()).collect();
    assert_eq!(epochs, [Some(1), Some(2)]);
    assert_eq!(events.last().expect("events").2["status"], "aborted");

    assert_lacks_only_accuracy(&place, "out", 0);
    assert_has(&said.out, &["unverified: these results are not verified"]);

    // The submission's script runs the same benchmark.
    let mut command = Command::new("sh");
    command.arg(place.join("out/benchmarks/maskrcnn/implementations/box/run_and_time.sh"));
    command.args(["--keep-caches"]).env("OUT", "again").current_dir(place.path());
    command.env("ONEGRAPH", env!("CARGO_BIN_EXE_onegraph-under-test"));
    assert_eq!(crate::common::said(&mut command).code, 0);
    assert!(place.text(&log("again", 0)).contains("eval_accuracy"));
}

/// A shortened timed run on an emulated GPU, with few RoIs, writes a valid log.
#[test]
fn shortened_timed_device_run_writes_log() {
    let gpus = Gpus::new("H100");
    gpus.place.write("short.toml", SHORT);
    let few = "--set train.steps=3 --set model.roi.batch_size_per_image=8 \
               --set model.rpn.post_nms_top_n_train=40 --set model.rpn.post_nms_top_n_test=10";
    let said = gpus.good(&format!("{} {few}", RUN.replace("--device cpu", "--device cuda")));
    assert_has(&said, &["aborted", "24 images"]);
    let events = events(&gpus.place.text(&log("out", 0)));
    assert_eq!(events.last().expect("events").2["status"], "aborted");
    let system = gpus.place.text("out/systems/box.json");
    assert!(system.contains("NVIDIA H100 80GB HBM3"), "{system}");
    assert_is_a_log(&gpus.place, "out", 0);
}

/// Checks that a log passes the official checker for the open division.
fn assert_is_a_log(place: &Place, out: &str, run: usize) {
    let log = log(out, run);
    let words = ["--usage", "training", "--ruleset", "3.1.0", &log];
    let Some((said, _)) = check(place, "compliance_checker", &words) else { return };
    assert_has(&said, &["SUCCESS"]);
}

/// Checks that a run's log and system description pass the official checkers, also for the closed
/// division, except for the accuracy.
fn assert_lacks_only_accuracy(place: &Place, out: &str, run: usize) {
    assert_is_a_log(place, out, run);
    let log = log(out, run);
    // Apply the rules of the closed division to the same log.
    let open = place.text(&log);
    place.write("closed.txt", open.replace(r#""value": "open""#, r#""value": "closed""#));
    let words = ["--usage", "training", "--ruleset", "3.1.0", "closed.txt"];
    let Some((said, _)) = check(place, "compliance_checker", &words) else { return };
    let complaints: Vec<&str> =
        said.lines().filter(|line| line.starts_with("WARNING") || line.contains("Error")).collect();
    assert!(complaints.len() == 1 && complaints[0].contains("eval_accuracy"), "{said}");
    let system = format!("{out}/systems/box.json");
    let words = [system.as_str(), "training", "3.1.0"];
    let Some((said, _)) = check(place, "system_desc_checker", &words) else { return };
    assert_has(&said, &["passed"]);
}

#[test]
fn timed_runs_that_reach_targets_are_scored() {
    let place = place();
    let run = format!("{RUN} --runs 3 --set train.target_box=0 --set train.target_mask=0");
    let said = place.prints(&run, &[]);
    assert_eq!(said.out.matches("success").count(), 3, "{}", said.out);
    assert_has(&said.out, &["olympic mean of 1 of 3 runs"]);
    let seeds = (0..3).map(|i| {
        let events = events(&place.text(&log("out", i)));
        let stop = events.last().expect("events");
        assert_eq!((stop.0.as_str(), &stop.2["status"]), ("run_stop", &"success".into()));
        events[at(&events, "seed")].1.as_u64()
    });
    assert_eq!(seeds.collect::<Vec<_>>(), [Some(7), Some(8), Some(9)]);
    // The first evaluation reaches the targets, so its checkpoint is the last.
    for i in 0..3 {
        let last = place.text(&format!("out/runs/result_{i}/last_checkpoint"));
        assert_eq!(last, "checkpoints/step_00000003\n");
    }
    place.bad(&run, BAD_CONFIG, &["result_0.txt", "belongs to an earlier run", "--out"]);
    // Rejected at the start because result 2 exists, although results 3 and 4 do not.
    place.bad(&format!("{run} --first 2"), BAD_CONFIG, &["result_2.txt", "different --first"]);
    assert!(!place.join("out/runs/result_3").exists());
    place.prints(&run.replace("--runs 3", "--runs 2 --first 3"), &[]);
    let events = events(&place.text(&log("out", 3)));
    assert_eq!(events[at(&events, "seed")].1, 10, "as if all had been made at once");
    assert_tree_is_accepted(&place);
}

/// Checks that the folder passes the official checker as a submission, with the accuracy and the
/// epochs of full model runs in place of those of the tiny model.
fn assert_tree_is_accepted(place: &Place) {
    let folder = "out/benchmarks/maskrcnn/implementations/box";
    let files = "README.md box_onegraph.json config.toml init_datasets.sh run_and_time.sh setup.sh";
    assert_eq!(place.names(folder).join(" "), files);
    let closed = |text: String| text.replace("\"open\"", "\"closed\"");
    let system = closed(place.text("out/systems/box.json"));
    place.write("out/systems/box.json", system);
    for i in 0..5 {
        let log = log("out", i);
        let line = |line: &str| match line.split_once("\"eval_accuracy\", ") {
            Some((start, _)) => format!(
                "{start}\"eval_accuracy\", \"value\": {{\"BBOX\": 0.38, \"SEGM\": 0.34}}, \
                 \"metadata\": {{\"epoch_num\": 13}}}}\n"
            ),
            None => format!("{line}\n"),
        };
        let text: String = closed(place.text(&log)).lines().map(line).collect();
        place.write(&log, text);
    }
    let words = ["out", "training", "3.1.0"];
    let Some((said, _)) = check(place, "package_checker", &words) else { return };
    assert_has(&said, &["FOUND NO ERRORS"]);
}

/// Flips one byte in each file of a store: names and sizes of images are metadata, all other files
/// are read after the clock has started. A run that reads damaged data gets no score.
#[test]
fn timed_run_detects_damage_after_run_start() {
    let place = place();
    place.shapes(20, "train");
    place.good("prep --synthetic shapes --count 6 --size 64 --seed 5 --out val");
    let stores = stores("train/store", "val/store");
    let files = place.names("train/store").into_iter().map(|name| format!("train/store/{name}"));
    let files = files.filter(|file| !place.bytes(file).is_empty());
    let files: Vec<String> = files.chain(["val/store/objects.bin".into()]).collect();
    assert!(files.len() >= 10, "{files:?}");
    for (i, file) in files.iter().enumerate() {
        place.flip(file);
        let words = file.replace("store/", "store: ").replace("pixels.bin", "pixels of image");
        let run = RUN.replace("--out out", &format!("--out out{i}"));
        place.bad(&format!("{run} {stores}"), BAD_DATA, &[&words]);
        place.flip(file);
        let log = place.join(&log(&format!("out{i}"), 0));
        let is_index = ["header.json", "images.bin", "names.bin"].iter().any(|f| file.ends_with(f));
        assert_eq!(log.exists(), !is_index, "{file}: the clock ran");
        if let Ok(log) = std::fs::read_to_string(log) {
            let events = events(&log);
            let places = ["init_stop", "run_start", "run_stop"].map(|key| at(&events, key));
            assert!(places.is_sorted(), "{file}: {events:?}");
            assert_eq!(events.last().expect("events").2["status"], "aborted", "{file}");
        }
    }
}

#[test]
fn diverged_timed_run_is_followed_by_the_next() {
    let place = place();
    let wild = "--set solver.learning_rate=1e6 --set solver.warmup_steps=0 --set train.steps=30";
    let said = place.run(&format!("{RUN} --runs 2 {wild}"));
    assert_eq!(said.code, DIVERGED, "{}", said.err);
    assert_has(&said.err, &["result_0.txt missed its targets"]);
    assert_eq!(said.out.matches("aborted").count(), 2, "{}", said.out);
    for i in 0..2 {
        let events = events(&place.text(&log("out", i)));
        let stop = events.last().expect("events");
        assert_eq!((stop.0.as_str(), &stop.2["status"]), ("run_stop", &"aborted".into()));
    }
}

#[test]
fn run_that_breaks_timing_rules_is_rejected() {
    let place = place();
    for (set, words) in [
        ("train.target_mask=none", "set train.target_box and train.target_mask"),
        ("train.eval_every_epochs=2", "train.eval_every_epochs=1"),
        ("data.classes=[\"disc\"]", "data.classes would read annotated objects before the clock"),
        (
            "data.train_images=i --set data.train_annotations=a.json --set data.synthetic=none",
            "make one store of each split with `onegraph prep`",
        ),
    ] {
        place.bad(&format!("{RUN} --set {set}"), BAD_CONFIG, &[words]);
    }
    assert!(!place.join("out").exists(), "a refused run leaves nothing");
    let none = RUN.replace("short.toml", "mlperf_8");
    place.bad(&none, BAD_CONFIG, &["has no train data"]);
    let partial = format!("{RUN} --set train.steps=4");
    place.bad(&partial, BAD_CONFIG, &["train.steps is 4", "has 3 steps", "set train.steps=6"]);
    let left = ["out/results", "out/runs/result_0"].map(|path| place.join(path).exists());
    assert_eq!(left, [false, false], "its clock did not start: there was no run");
    let words = RUN.replace("--system box", "--system ../box");
    let said = place.run(&words);
    assert!(said.code == 2 && said.err.contains("part of file names"), "{}", said.err);
}

/// All steps of docs/timed-run.md on two hosts with two ranks each, with synthetic data and a small
/// model: in a training run one rank is killed, and the run continues from its checkpoint.
#[test]
fn timed_run_works_on_two_hosts() {
    if !has_namespaces() || is_missing("mpirun") {
        return;
    }
    let place = place();
    place.good("doctor");
    place.shapes(20, "train");
    place.good("prep --synthetic shapes --count 6 --size 64 --seed 5 --out val");
    place.good("config --mlperf 8");
    let stores = format!("{} --device cpu", stores("train/store", "val/store"));
    let bench = format!("--preset short.toml --steps 2 {stores}");
    let told = on_two_hosts(&place, "bench", &bench).out;
    for words in
        ["over 2 of 2 steps", "rank 1 on host-a: ", "rank 2 on host-b: ", "rank 3 on host-b: "]
    {
        assert_eq!(told.matches(words).count(), 1, "{words}: {told}");
    }

    // With unreachable targets the run would continue until all steps are done.
    let timed = format!(
        "mlperf run short.toml --out submission --system box --org ours --seed 7 --keep-caches \
         {stores}"
    );
    let endless = "--set train.steps=3000 --set train.target_box=1 --set train.target_mask=1";
    let run = starting(&place, "onegraph", &format!("{timed} {endless}"));
    let saved = place.join("submission/runs/result_0/last_checkpoint");
    let begin = std::time::Instant::now();
    while !saved.exists() {
        assert!(begin.elapsed().as_secs() < 60, "no checkpoint after 60 s");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    run.signal_of_mpirun(3, rustix::process::Signal::KILL);
    let ended = run.end();
    assert_ne!(ended.codes, [0], "{}", ended.said);
    assert_has(&ended.said, &["rank 0: error: rank 3 on host host-b was lost"]);
    let stop = events(&place.text(&log("submission", 0)));
    assert_eq!(stop.last().expect("events").2["status"], "aborted");
    let cleared = stop[at(&stop, "cache_clear")].2["hosts"].as_array();
    assert_eq!(cleared.map(Vec::len), Some(2), "one entry of each host");
    let resumed = "train --resume submission/runs/result_0 --target box=0,mask=0 --device cpu";
    let ended = on_two_hosts(&place, "onegraph", resumed);
    assert_has(&ended.said, &["resuming after step "]);
    let report = place.json("submission/runs/result_0/report.json");
    assert_eq!(report["state"], "target_reached");

    let reached = "--first 1 --runs 3 --set train.target_box=0 --set train.target_mask=0";
    let told = on_two_hosts(&place, "onegraph", &format!("{timed} {reached}")).out;
    assert_eq!(told.matches("success").count(), 3, "one rank reports it: {told}");
    let logs = [1, 2, 3].map(|run| log("submission", run));
    let scored = place.run(&format!("mlperf score {}", logs.join(" ")));
    assert_has(&scored.out, &["olympic mean of 1 of 3 runs"]);
    // Runs of a tiny model end before the first epoch at which the reference has a score.
    assert_eq!(scored.code, 1, "{}", scored.err);
    assert_has(&scored.err, &["no score: the runs converge faster"]);
    assert_lacks_only_accuracy(&place, "submission", 1);
}

/// Starts a command with two ranks on each of two hosts, by mpirun.sh.
fn starting<'a>(place: &'a Place, program: &str, arguments: &str) -> Running<'a> {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/launch");
    let mut command = Command::new(scripts.join("two-hosts.sh"));
    command.arg("-m").arg(scripts.join("mpirun.sh"));
    command.args(["-H", "10.77.0.1:2,10.77.0.2:2", "--"]).args(arguments.split_whitespace());
    let program = match program {
        "bench" => env!("CARGO_BIN_EXE_bench-under-test"),
        _ => env!("CARGO_BIN_EXE_onegraph-under-test"),
    };
    command.env("ONEGRAPH_BIN", program).env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    for name in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
        command.env(name, "1");
    }
    // After a rank has failed, mpirun needs four times this value to end.
    command.env("OMPI_MCA_odls_base_sigkill_timeout", "2");
    Running::by(place, command)
}

/// Like [`starting`], but waits until the command ends.
fn on_two_hosts(place: &Place, program: &str, arguments: &str) -> Ended {
    let ended = starting(place, program, arguments).end();
    assert_eq!(ended.codes, [0], "{}", ended.said);
    ended
}
