//! GEMMs on the CPU in bf16 (`train.cpu_precision`), and with Winograd tiles (`train.winograd`).

use kernels::isa::has_bf16;

use crate::common::{BAD_CONFIG, Place, as_list, bad, good, micro};

const BF16: &str = "--set train.cpu_precision=bf16";

/// Layers that are wide enough for Winograd tiles.
const WIDE: &str = "--set model.fpn.channels=64 --set model.mask_head.channels=[32]";

/// A bf16 run is reproducible, resumes bit-identically and differs from an fp32 run; its weights
/// can be used for detection in both precisions.
#[test]
fn bf16_run_repeats_and_resumes_bit_identically() {
    if !has_bf16() {
        println!("SKIPPED: this processor does not support bf16");
        return;
    }
    let place = Place::new();
    repeats_and_resumes(&place, [BF16, ""], "train.cpu_precision=fp32");
    for (run, told) in [("a", true), ("c", false)] {
        assert_eq!(place.text(&format!("runs/{run}/log.txt")).contains(") in bf16, "), told);
    }
    let images = "runs/data/micro/val-8x64-seed0/images";
    let scores = "--set model.detections.score_threshold=0.05 --min-score 0.05";
    for (out, more) in [("own", ""), ("fp32", "--set train.cpu_precision=fp32")] {
        place.good(&format!("predict --run runs/a {scores} {more} --out {out} {images}"));
    }
    let found = |out: &str| place.json(&format!("{out}/predictions.json"));
    let (own, fp32) = (found("own"), found("fp32"));
    let boxes = |of: &serde_json::Value| as_list(of).len();
    assert!(own != fp32 && boxes(&own) > 0, "the precision of the run is that of its detection");
    assert!(boxes(&own).abs_diff(boxes(&fp32)) <= 8, "{} {}", boxes(&own), boxes(&fp32));
}

#[test]
fn processor_without_bf16_prints_one_line_error() {
    let place = Place::new();
    let mut command = place.command(&micro(BF16));
    let sentence = "error: train.cpu_precision is bf16, but this processor does not support bf16";
    bad(command.env("ONEGRAPH_CPU_ISA", "portable"), BAD_CONFIG, &[sentence]);
    assert!(!place.join("runs/micro").exists(), "nothing begins");
}

/// A run with Winograd tiles in 3x3 convolutions, the default, is reproducible and resumes
/// bit-identically.
#[test]
fn winograd_run_repeats_and_resumes_bit_identically() {
    let place = Place::new();
    let plain = format!("{WIDE} --set train.winograd=false");
    repeats_and_resumes(&place, [WIDE, &plain], "train.winograd=false");
}

/// Run `a` on one thread and run `b` on four threads, resumed half way, have the same weights, and
/// run `c` has different ones; resuming with a different value of `key` is rejected.
fn repeats_and_resumes(place: &Place, [own, other]: [&str; 2], key: &str) {
    let weights = |run: &str, step: u64| {
        place.bytes(&format!("runs/{run}/checkpoints/step_{step:08}/model.safetensors"))
    };
    let steps = "--set train.steps=8 --set train.checkpoint_every_steps=4";
    for (name, more) in [("a", own), ("b", own), ("c", other)] {
        let threads = if name == "a" { "1" } else { "4" };
        let mut run = place.command(&micro(&format!("{steps} {more} --set train.name={name}")));
        good(run.env("RAYON_NUM_THREADS", threads));
    }
    assert!(weights("a", 8) == weights("b", 8), "the same run on one thread and on four");
    assert!(weights("a", 8) != weights("c", 8), "{key} changes nothing");
    place.write("runs/b/last_checkpoint", "checkpoints/step_00000004\n");
    std::fs::remove_dir_all(place.join("runs/b/checkpoints/step_00000008")).expect("it is there");
    place.good("train --resume runs/b");
    assert!(weights("a", 8) == weights("b", 8), "resumed");
    let name = key.split('=').next().expect("a key");
    let changed = format!("train --resume runs/b --set train.steps=9 --set {key}");
    place.bad(&changed, BAD_CONFIG, &[name]);
}
