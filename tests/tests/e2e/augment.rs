//! Views sampled for each image and epoch: bit-identical on any number of threads and after
//! resuming, with epochs of equal length; disabled by default.

use crate::common::{BAD_CONFIG, Place, as_number, assert_has, good, micro};

/// Config for micro's 16 images of 64 x 64 with every kind of view.
const ALL: &str = "--set input.augment.min_sizes=[48,56,64,80] --set input.max_size=96 \
                   --set input.augment.crop=0.5 --set input.augment.aspect=0.3 \
                   --set input.augment.vertical_flip=0.5 --set input.augment.min_visible=0.1 \
                   --set input.buckets_per_orientation=2 --set input.augment.brightness=0.4 \
                   --set input.augment.contrast=0.4 --set input.augment.saturation=0.4 \
                   --set input.augment.hue=0.1 --set input.augment.grey=0.2";
const TURNS: &str = "--set input.augment.quarter_turns=0.7 --set input.augment.aspect=0.5 \
                     --set input.buckets_per_orientation=2";
const JITTER: &str = "--set input.augment.jitter_size=64 --set data.empty=keep \
                      --set input.augment.boxes_after_crop=mask";

/// A run of three epochs of 8 steps equals one that is interrupted in mid-epoch.
#[test]
fn augmented_run_is_bit_identical_across_threads_and_resume() {
    for (name, rule) in [("all", ALL), ("jitter", JITTER), ("turns", TURNS)] {
        let place = Place::new();
        let run = |run: &str, steps: usize, threads: &str| {
            let set = format!("--set train.steps={steps} --set solver.warmup_steps=2 {rule}");
            let mut command = place.command(&micro(&format!("{set} --set train.name={run}")));
            good(command.env("RAYON_NUM_THREADS", threads)).err
        };
        run("one", 20, "1");
        run("three", 20, "3");
        run("cut", 11, "2");
        place.good("train --resume runs/cut --set train.steps=20");
        let straight = place.state("runs/one", 20);
        assert!(straight == place.state("runs/three", 20), "{name}: other bits on three threads");
        assert!(straight == place.state("runs/cut", 20), "{name}: other bits after a resume");
        let losses = |steps: Vec<serde_json::Value>| {
            steps.iter().map(|step| as_number(&step["loss"])).collect::<Vec<_>>()
        };
        assert!(losses(place.steps("runs/one")).iter().all(|loss| loss.is_finite()), "{name}");
        place.good(&micro(
            "--set train.steps=20 --set solver.warmup_steps=2 --set train.name=plain",
        ));
        assert!(straight != place.state("runs/plain", 20), "{name}: nothing is drawn");
    }
}

/// The data page for micro's images with every kind of view shows pictures of each image in three
/// epochs, statistics, and duplicates.
#[test]
fn data_page_shows_network_input() {
    let place = Place::new();
    let page = |set: &str| {
        place.good(&format!("inspect data micro --out page.html {set}"));
        place.text("page.html")
    };
    let html = page(ALL);
    assert!(html.len() < 2_000_000 && !html.contains("http"), "{} bytes", html.len());
    assert_eq!(html.matches("<img ").count(), 3 * 16);
    assert_has(&html, &["Network inputs", "Classes", "64x64", "Duplicates", "anchors.sizes"]);
    assert_ne!(html, page(""), "the views are drawn");
    place.bad("inspect data", BAD_CONFIG, &["need a config"]);
}

#[test]
fn invalid_options_are_rejected_and_ineffective_ones_reported() {
    let place = Place::new();
    for (set, words) in [
        ("input.augment.jitter_scale=[2,1]", "give the least factor, then the greatest"),
        ("input.augment.min_sizes=[48,96]", "none may exceed input.max_size = 64"),
        ("data.classes=['circle','circle']", "`data.classes` names `circle` twice"),
        ("train.log=[{every=0}]", "--set: `train.log.every` is 0"),
    ] {
        place.bad(&micro(&format!("--set {set}")), BAD_CONFIG, &[words]);
    }
    let idle = "--set input.augment.jitter_scale=[0.5,2] --set train.steps=1";
    place.prints(
        &micro(&format!("{idle} --set solver.warmup_steps=0")),
        &["has no effect with input.augment.jitter_size = 0"],
    );
}
