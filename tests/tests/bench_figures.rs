//! `bench infer` on the CPU and on the emulated driver, the history of its measurements, and
//! `bench --plan`.

mod common;

use common::driver::Gpus;
use common::{Place, as_list, assert_has, good, micro, said};
use serde_json::Value;

fn bench(place: &Place, arguments: &str) -> String {
    good(&mut place.bench(arguments)).out
}

/// Runs `bench` with a GPU.
fn on_device(gpus: &Gpus, arguments: &str) -> String {
    good(&mut gpus.bench(arguments)).out
}

fn refused(place: &Place, arguments: &str) -> String {
    let said = said(&mut place.bench(arguments));
    assert_eq!(said.code, 1, "{arguments}: {}", said.out);
    let one_line = said.err.trim().lines().count() == 1;
    assert!(one_line && said.err.starts_with("error: "), "{}", said.err);
    said.err
}

fn number(value: &Value, pointer: &str) -> f64 {
    let number = value.pointer(pointer).and_then(Value::as_f64);
    number.unwrap_or_else(|| panic!("{pointer}: {value}"))
}

/// Checks that a case has every figure, and that throughput does not increase from stage to stage.
fn check_case(case: &Value, size: u64, images: u64) {
    assert_eq!((&case["batch_size"], &case["images"]), (&size.into(), &images.into()), "{case}");
    let rate = |part: &str| number(case, &format!("/{part}/images_per_second"));
    let parts = ["program", "boxes", "masks", "scored"].map(rate);
    assert!(parts[3] > 0.0 && parts.is_sorted_by(|a, b| a >= b), "{parts:?}");
    for part in ["program", "boxes", "masks"] {
        let at = |what: &str| number(case, &format!("/{part}/{what}"));
        assert!(at("p50_ms") > 0.0 && at("p95_ms") >= at("p50_ms"), "{case}");
    }
}

#[test]
fn bench_measures_detection_on_cpu_and_device() {
    let gpus = Gpus::new("A100");
    let place = &gpus.place;
    let wanted = "--preset micro --batch 1,3 --images 5 --warmup 1 --json i.json";
    let mut found = Vec::new();
    for device in ["cpu", "cuda"] {
        let told = on_device(&gpus, &format!("infer {wanted} --device {device}"));
        let value = place.json("i.json");
        assert_eq!((&value["kind"], &value["weights"]), (&"infer".into(), &"random".into()));
        let cases = as_list(&value["cases"]);
        assert_eq!(cases.len(), 2);
        check_case(&cases[0], 1, 5);
        check_case(&cases[1], 3, 6);
        let is_device = device == "cuda";
        assert_eq!(cases[0]["copy_ms"].is_number(), is_device, "{value}");
        assert_eq!(told.contains("begins with copying"), is_device, "{told}");
        // With random weights there is no score threshold, and each image has the maximum number of
        // detections.
        assert_eq!(number(&value, "/score_threshold"), 0.0);
        found.push(number(&cases[0], "/detections_per_image"));
    }
    assert_eq!(found, [10.0, 10.0]);
    // The flag `--infer` instead of the subcommand, with synthetic images of a given shape and a
    // time limit of zero.
    let told = bench(place, "--infer --preset micro --padded 64x96 --batch 2 --seconds 0");
    assert_has(&told, &[" 64x96      2 "]);
    let told = refused(place, "--infer --preset micro --batch 1,0");
    assert_has(&told, &["--batch 0: a run takes at least one image"]);
}

#[test]
fn bench_counts_positive_rois_and_rejects_too_many() {
    let place = Place::new();
    let run = "--device cpu --preset micro --padded 64x64 --warmup 0 --steps 1 --positives";
    bench(&place, &format!("{run} 3 --set train.batch_size=2 --json p.json"));
    let positives = number(&place.json("p.json"), "/positives_per_image");
    assert!((3.0..=4.0).contains(&positives), "{positives}");
    assert!(refused(&place, &format!("{run} 5")).contains("at most 4"));
}

#[test]
fn bench_of_trained_weights_uses_configured_score_threshold() {
    let place = Place::new();
    place.good(&micro("--set train.steps=2 --device cpu"));
    let weights = "runs/micro/checkpoints/step_00000002/model.safetensors";
    let told = bench(&place, &format!("infer --preset micro --weights {weights} --json i.json"));
    assert_has(&told, &[&format!("weights {weights} | scores over 0.05")]);
    let value = place.json("i.json");
    assert!((number(&value, "/score_threshold") - 0.05).abs() < 1e-6, "{value}");
    let told = refused(&place, "infer --preset micro --weights none.safetensors");
    assert_has(&told, &["none.safetensors"]);
}

#[test]
fn bench_session_is_added_to_history_once() {
    let gpus = Gpus::new("A100");
    let place = &gpus.place;
    for folder in ["a", "b"] {
        std::fs::create_dir(place.join(folder)).expect("a folder");
    }
    on_device(&gpus, "--preset micro --steps 2 --warmup 1 --device cuda --json a/step.json");
    on_device(&gpus, "infer --preset micro --batch 2 --images 2 --device cuda --json b/infer.json");
    let apart = "--preset micro --device cuda --check skip --repeats 1 --json b/nodes.json";
    on_device(&gpus, &format!("nodes {apart}"));
    let add = "history --add a b --into kept --date 2026-12-01 --remark none";
    let told = bench(place, add);
    assert!(told.starts_with("wrote kept/2026-12-01-") && told.ends_with(": 3 files\n"), "{told}");
    let fault = refused(place, add);
    assert!(fault.contains("give all folders of the session at once, with --replace"), "{fault}");
    assert!(bench(place, &format!("{add} --replace")).starts_with("wrote "));
    let told = bench(place, "history --into kept");
    assert_has(&told, &["(none)", "step.json/images_per_second", "2026-12-01"]);
    let told = bench(place, "history --into kept --filter flops");
    assert_has(&told, &["nodes.json/rows/"]);
    place.write("a/other.json", "{\"commit\": \"another\"}");
    let fault = refused(place, &format!("{add} --replace"));
    assert!(fault.contains("its commit is `"), "{fault}");
}

/// One rank with the all-reduces of a multi-rank step: losses are equal up to rounding, the
/// all-reduces are counted, and the step time is compared with that of the plain step.
#[test]
fn bench_measures_all_reduce_with_one_rank() {
    let gpus = Gpus::new("A100");
    let place = &gpus.place;
    std::fs::create_dir(place.join("a")).expect("a folder");
    let step = "--preset micro --steps 2 --warmup 1";
    on_device(&gpus, &format!("{step} --device cuda --json a/plain.json"));
    let summing = format!("{step} --all-reduce --against a/plain.json");
    let small = "--set ranks.bucket_mib=1";
    let told = on_device(&gpus, &format!("{summing} {small} --device cuda --json a/sums.json"));
    assert_has(&told, &["all-reduce through nccl: "]);
    let [plain, sums] = ["a/plain.json", "a/sums.json"].map(|file| place.json(file));
    assert_eq!((&plain["all_reduce"], &plain["reduced"]), (&"none".into(), &Value::Null));
    assert_eq!((&sums["all_reduce"], &sums["reduced"]["bucket_mib"]), (&"nccl".into(), &1.into()));
    assert!(number(&sums, "/reduced/buckets") == 1.0 && number(&sums, "/reduced/bytes") > 4e4);
    let ratio = number(&sums, "/step_ms/p50") / number(&plain, "/step_ms/p50");
    assert!((number(&sums, "/against/ratio") - ratio).abs() < 1e-9, "{sums}");
    let kernels = |value: &Value| number(value, "/graph_kernels/0");
    assert!(kernels(&sums) > kernels(&plain), "filling and emptying buckets");

    let told = refused(place, &format!("{step} --all-reduce --device cpu"));
    assert_has(&told, &["--all-reduce needs a GPU: on the CPU a single rank has no all-reduce"]);
    for (file, words) in [
        ("a/sums.json", "holds no bench of a step without --all-reduce"),
        ("none.json", "--against none.json"),
    ] {
        let wrong = format!("{step} --all-reduce --against {file} --device cuda");
        let said = said(&mut gpus.bench(&wrong));
        assert!(said.code == 1 && said.err.contains(words), "{}", said.err);
    }
}

/// The plan needs no device; its text states that the times are predicted, and its file has every
/// figure.
#[test]
fn bench_plan_estimates_multi_gpu_step() {
    let place = Place::new();
    let flags = "--gpu a100 --images 1 --set ranks.bucket_mib=1 --json p.json";
    let told = bench(&place, &format!("--plan --gpus 32 {flags} --network-gb-s 20 --hop-us 9"));
    assert_has(
        &told,
        &["not verified on hardware", "mlperf_r50 on 32 A100", "20 GB/s and 9 us per hop"],
    );
    let value = place.json("p.json");
    assert_eq!((&value["kind"], &value["verified_on_hardware"]), (&"plan".into(), &false.into()));
    let scaling = as_list(&value["scaling_fast_expected_slow"]);
    let gpus: Vec<_> = scaling.iter().map(|row| number(row, "/gpus")).collect();
    assert_eq!(gpus, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]);
    let told = bench(&place, "plan --gpus 1");
    assert!(told.contains("mlperf_r50 on 1 H100") && !told.contains("all-reduce of"), "{told}");
    for (wrong, words) in [
        ("--gpus 5000", "--gpus 5000: must be from 1 to 4096"),
        ("--gpus 0", "--gpus 0: "),
        ("--device v100", "--device v100 is not known; choose one of a100, h100, h200"),
        ("--images 0", "--images 0: must be from 1 to 256"),
        ("--positives 0", "--positives 0: "),
        ("--hop-us=-1", "--hop-us -1: must be above 0"),
        ("--padded 801x1344", "must be multiples of input.size_divisor, which is 32"),
        ("--set train.micro_steps=2", "add --set train.micro_steps=1"),
        ("--set train.precision=fp32", "add --set train.precision=fp16"),
        ("--preset nothing", "nothing"),
    ] {
        let told = refused(&place, &format!("--plan {wrong}"));
        assert!(told.contains(words), "{wrong}: {told}");
    }
}
