//! Ranks on the emulated driver: all-reduces in captured graphs, by the emulated NCCL.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::driver::Gpus;
use crate::common::{NO_DEVICE, RANK_LOST, as_number, assert_has, micro, said};

fn train(gpus: &Gpus, more: &str, plant: &str) -> Command {
    let arguments = micro(&format!(
        "--device cuda --set train.images_per_group=1 --set train.log_every_steps=1 {more}"
    ));
    gpus.command(&arguments, &[("NCCL_TEST_PLANT", plant)])
}

/// The driver's findings except leaks, since a rank keeps modules and a stream until its process
/// ends.
fn findings(gpus: &Gpus) -> Vec<String> {
    let all = gpus.findings();
    all.lines().filter(|line| !line.starts_with("leak: ")).map(String::from).collect()
}

#[test]
fn two_gpu_ranks_are_deterministic() {
    let gpus = Gpus::new("A100,A100");
    let state = |name: &str, ranks: &str| {
        let more = format!("--set train.steps=3 --set train.name={name} {ranks}");
        let said = said(&mut train(&gpus, &more, ""));
        assert_eq!((said.code, findings(&gpus)), (0, vec![]), "{}", said.err);
        gpus.place.state(&format!("runs/{name}"), 3)
    };
    let two = state("two", "--ranks 2");
    // Accuracies and collections do not change the run; collected gradients are all-reduced.
    let shown = "--set train.accuracies=true --set train.log=[{of='gradients',every=3}]";
    assert!(two == state("again", &format!("--ranks 2 {shown}")), "bit-identical each time");
    let steps = gpus.place.steps("runs/again");
    assert!(steps[2]["roi_head/num_bg_samples"].as_f64().is_some_and(|rois| rois > 0.0));
    let metrics = gpus.place.metrics("runs/again");
    let collected = metrics.iter().find(|line| line["log"] == "gradients").expect("a collection");
    let parts = collected["parts"].as_object().expect("parts");
    let squares: f64 = parts.values().filter_map(|part| part["l2"].as_f64()).map(|n| n * n).sum();
    let all = as_number(&steps[2]["grad_norm"]);
    assert!((squares.sqrt() / all - 1.0).abs() < 1e-3, "{parts:?} {all}");
}

#[test]
fn four_gpu_ranks_are_deterministic() {
    let gpus = Gpus::new("A100,A100,A100,A100");
    let train_with = |name: &str, ranks: u32| {
        let more = format!(
            "--set train.steps=2 --set train.batch_size=4 --set train.name={name} --ranks {ranks}"
        );
        let said = said(&mut train(&gpus, &more, ""));
        assert_eq!((said.code, findings(&gpus)), (0, vec![]), "{}", said.err);
        let loss = gpus.place.steps(&format!("runs/{name}"))[1]["loss"].as_f64();
        (gpus.place.state(&format!("runs/{name}"), 2), loss.expect("a loss"))
    };
    let ([four, again], two) =
        (["four", "again"].map(|name| train_with(name, 4)), train_with("two", 2));
    assert!(four.0 == again.0, "bit-identical each time");
    // The sums have a different order with four ranks.
    assert!(((four.1 - two.1) / two.1).abs() < 1e-2, "{} and {}", four.1, two.1);
}

/// Rank 1 dies in an all-reduce: rank 0 leaves the NCCL group although its graphs contain
/// all-reduces, and reports the lost rank.
#[test]
fn rank_killed_during_all_reduce_is_reported() {
    let gpus = Gpus::new("H100,H100");
    let since = Instant::now();
    let said = said(&mut train(&gpus, "--set train.steps=400 --ranks 2", "1/sum:9=die"));
    assert!(since.elapsed() < Duration::from_secs(60), "{:?}", since.elapsed());
    assert_has(&said.err, &["rank 0: error: rank 1 on host ", " was lost at step "]);
    assert_ne!(said.code, 0);
    assert_eq!(findings(&gpus), Vec::<String>::new());
}

/// A failure of NCCL while all ranks are alive ends all ranks; no rank waits for the failed
/// all-reduce.
#[test]
fn failed_all_reduce_stops_all_ranks() {
    let gpus = Gpus::new("H100,H100");
    let since = Instant::now();
    let said = said(&mut train(&gpus, "--set train.steps=400 --ranks 2", "0/sum:9=error"));
    assert!(since.elapsed() < Duration::from_secs(60), "{:?}", since.elapsed());
    // Any rank may report first: a rank may detect the closed connection before it receives the
    // reason.
    assert!([NO_DEVICE, RANK_LOST].contains(&said.code), "{}: {}", said.code, said.err);
    assert_has(&said.err, &["error: all-reduce: "]);
    assert!(!said.err.contains("panicked"), "{}", said.err);
}
