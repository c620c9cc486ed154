//! `train.cpu_precision = "bf16"`: products of bf16 on a processor that has them.

use kernels::isa::has_bf16;

use crate::common::{BAD_CONFIG, Place, micro, said};

const BF16: &str = "--set train.cpu_precision=bf16";

/// A run in bf16 is reproducible, resumes to the bit, differs from one in fp32, and is detected
/// with in either.
#[test]
fn a_run_in_bf16_repeats_and_resumes_to_the_bit() {
    if !has_bf16() {
        println!("SKIPPED: this processor does not multiply bf16");
        return;
    }
    let place = Place::new();
    let weights = |run: &str, step: u64| {
        place.bytes(&format!("runs/{run}/checkpoints/step_{step:08}/model.safetensors"))
    };
    let steps = "--set train.steps=8 --set train.checkpoint_every_steps=4";
    for (name, more) in [("a", BF16), ("b", BF16), ("c", "")] {
        let threads = if name == "a" { "1" } else { "4" };
        let mut run = place.command(&micro(&format!("{steps} {more} --set train.name={name}")));
        let run = said(run.env("RAYON_NUM_THREADS", threads));
        assert_eq!(run.code, 0, "{}", run.err);
        assert_eq!(run.err.contains(") in bf16, "), name != "c", "{}", run.err);
    }
    assert!(weights("a", 8) == weights("b", 8), "the same run on one thread and on four");
    assert!(weights("a", 8) != weights("c", 8), "the precision changes nothing");
    place.write("runs/b/last_checkpoint", "checkpoints/step_00000004\n");
    std::fs::remove_dir_all(place.join("runs/b/checkpoints/step_00000008")).expect("it is there");
    place.good("train --resume runs/b");
    assert!(weights("a", 8) == weights("b", 8), "resumed");
    let fp32 = "train --resume runs/b --set train.steps=9 --set train.cpu_precision=fp32";
    place.bad(fp32, BAD_CONFIG, &["train.cpu_precision"]);
    let images = "runs/data/micro/val-8x64-seed0/images";
    let scores = "--set model.detections.score_threshold=0.05 --min-score 0.05";
    for (out, more) in [("own", ""), ("fp32", "--set train.cpu_precision=fp32")] {
        place.good(&format!("predict --run runs/a {scores} {more} --out {out} {images}"));
    }
    let found = |out: &str| place.json(&format!("{out}/predictions.json"));
    let (own, fp32) = (found("own"), found("fp32"));
    let boxes = |of: &serde_json::Value| of.as_array().expect("a list").len();
    assert!(own != fp32 && boxes(&own) > 0, "the precision of the run is that of its detection");
    assert!(boxes(&own).abs_diff(boxes(&fp32)) <= 8, "{} {}", boxes(&own), boxes(&fp32));
}

#[test]
fn a_processor_without_products_of_bf16_is_told_so() {
    let place = Place::new();
    let mut command = place.command(&micro(BF16));
    let refused = said(command.env("ONEGRAPH_CPU_ISA", "portable"));
    assert_eq!(refused.code, BAD_CONFIG, "{}", refused.err);
    let sentence = "error: train.cpu_precision is bf16, but this processor does not multiply bf16";
    assert!(refused.err.contains(sentence), "{}", refused.err);
    assert!(!place.join("runs/micro").exists(), "nothing begins");
}
