//! The commands on an emulated GPU: the shipped PTX, through the driver API, executed by the
//! emulated driver.

use crate::common::driver::Gpus;
use crate::common::{NO_DEVICE, Said, as_number, assert_has, good, micro, said};
use serde_json::Value;

fn losses(steps: &[Value]) -> Vec<f64> {
    steps.iter().map(|record| as_number(&record["loss"])).collect()
}

/// Largest relative difference.
fn apart(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| ((a - b) / b).abs()).fold(0.0, f64::max)
}

/// The commands of a user's first session, in each precision, compared with f32 on the CPU.
#[test]
fn emulated_gpu_trains_evaluates_and_predicts() {
    let gpus = Gpus::new("H100");
    let told = gpus.good("doctor");
    assert_has(&told, &["gpu 0    NVIDIA H100 80GB HBM3, "]);
    let train = |more: &str| {
        micro(&format!(
            "--set train.steps=6 --set train.log_every_steps=1 --set eval.loss=true \
             --set train.eval_every_steps=4 --set train.checkpoint_every_steps=3 {more}"
        ))
    };
    let losses = |run: &str| {
        let validation = gpus.place.metrics(run).pop().expect("an evaluation")["val_loss"].as_f64();
        [losses(&gpus.place.steps(run)), vec![validation.expect("a loss")]].concat()
    };
    // Runs on a device and on the CPU have the same records at the same steps.
    let kept = |run: &str| {
        let of = |record: &Value| ["step", "epoch", "images", "lr"].map(|key| record[key].clone());
        let records: Vec<_> = gpus.place.metrics(run).iter().map(of).collect();
        (records, gpus.place.names(&format!("{run}/checkpoints")))
    };
    gpus.place.good(&train("--device cpu --set train.name=cpu"));
    let of_cpu = losses("runs/cpu");
    // Measured: 1.3e-7, 1.6e-3 and 8.3e-4. tf32 and fp16 both have ten mantissa bits; if rounding
    // swaps two proposals, a loss changes by more than the rounding.
    for (precision, limit) in [("fp32", 1e-6), ("tf32", 5e-3), ("fp16", 5e-3)] {
        let more = format!("--device cuda --set train.precision={precision}");
        gpus.good(&train(&format!("{more} --set train.name={precision}")));
        let run = format!("runs/{precision}");
        let device = gpus.place.json(&format!("{run}/report.json"))["device"].to_string();
        assert_has(&device, &["H100"]);
        assert_eq!(kept(&run), kept("runs/cpu"));
        let apart = apart(&losses(&run), &of_cpu);
        assert!(apart < limit, "{precision}: {apart:e}");
    }
    gpus.good("eval --run runs/fp16 --device cuda");
    let images = "runs/data/micro/val-8x64-seed0/images";
    gpus.good(&format!("predict --run runs/fp16 --out found --device cuda {images}"));
}

/// GPU metrics equal NVML's, except for the clock, which is unknown; tensor collections are
/// recorded, without the rows past a layer's count, which are NaN.
#[test]
fn emulated_run_logs_gpu_metrics_and_tensors() {
    let gpus = Gpus::new("A100");
    let rule = "[{of='activations',tensors='*',every=2}]";
    let set = "--set train.steps=2 --set model.roi.batch_size_per_image=64";
    gpus.good(&micro(&format!("--device cuda {set} --set train.log={rule}")));
    let lines = gpus.place.records("runs/micro");
    let log = lines.iter().find(|line| line["log"] == "activations").expect("a collection");
    for name in ["P2", "class_logits", "box_regression", "mask_logits"] {
        assert!(as_number(&log["tensors"][name]["l2"]) > 0.0, "{log}");
    }
    let step = lines.iter().find(|line| line["step"] == 2 && line["lr"].is_f64()).expect("a step");
    let numbers = ["gpu_percent", "gpu_memory_mib", "gpu_watts", "gpu_sm_mhz", "gpu_memory_mhz"];
    let numbers = numbers.map(|name| step[&format!("system/{name}")].as_f64());
    assert_eq!(numbers, [Some(61.0), Some(42.0), Some(250.5), Some(1410.0), None], "{step}");
}

/// Views, colours and boxes of masks on a GPU equal the CPU's: steps in fp32 differ only by
/// rounding.
#[test]
fn gpu_views_and_colours_match_cpu() {
    const DRAWN: &str = "--set input.augment.min_sizes=[48,64] --set input.max_size=96 \
                         --set input.augment.crop=0.5 --set input.augment.quarter_turns=0.7 \
                         --set input.augment.brightness=0.4 --set input.augment.contrast=0.4 \
                         --set input.augment.hue=0.1 --set input.augment.boxes_after_crop=mask";
    let gpus = Gpus::new("H100");
    let set = "--set train.steps=3 --set train.log_every_steps=1 --set train.precision=fp32";
    let train =
        |name: &str| micro(&format!("{set} {DRAWN} --device {name} --set train.name={name}"));
    gpus.place.good(&train("cpu"));
    gpus.good(&train("cuda"));
    let [cpu, cuda] =
        ["cpu", "cuda"].map(|name| losses(&gpus.place.steps(&format!("runs/{name}"))));
    // Measured: at most 1.6e-7.
    assert!(apart(&cuda, &cpu) < 1e-6, "{cuda:?}, not {cpu:?}");
}

/// The weights are the same for any order of streams, blocks and warps.
#[test]
fn stream_order_does_not_change_results() {
    let gpus = Gpus::new("A100");
    let train = |name: &str, more: &[(&str, &str)]| {
        let arguments =
            micro(&format!("--device cuda --set train.steps=3 --set train.name={name}"));
        let said = said(&mut gpus.command(&arguments, more));
        assert_eq!((said.code, gpus.findings().as_str()), (0, ""), "{}", said.err);
        gpus.place.state(&format!("runs/{name}"), 3)
    };
    let first = train("first", &[("DRIVER_SEED", "1")]);
    assert!(first == train("second", &[("DRIVER_SEED", "2"), ("DRIVER_SCHEDULE", "late")]));
    assert!(first == train("races", &[("DRIVER_SEED", "3"), ("DRIVER_CHECKS", "races")]));
}

/// Driver functions whose error at the given call must end training.
const FATAL: &[(&str, u32)] = &[
    ("cuInit", 1),
    ("cuDeviceGetCount", 1),
    ("cuDevicePrimaryCtxRetain", 1),
    ("cuCtxSetCurrent", 20),
    ("cuCtxSynchronize", 1),
    ("cuMemGetInfo_v2", 1),
    ("cuMemAlloc_v2", 5),
    ("cuMemHostAlloc", 2),
    ("cuMemHostGetDevicePointer_v2", 1),
    ("cuMemcpyHtoDAsync_v2", 2),
    ("cuMemcpyDtoHAsync_v2", 1),
    ("cuMemcpyDtoDAsync_v2", 1),
    ("cuLaunchKernel", 7),
    ("cuStreamCreateWithPriority", 2),
    ("cuStreamSynchronize", 1),
    ("cuStreamQuery", 3),
    ("cuStreamWaitEvent", 2),
    ("cuStreamBeginCapture_v2", 1),
    ("cuStreamEndCapture", 1),
    ("cuStreamIsCapturing", 2),
    ("cuEventCreate", 2),
    ("cuEventRecord", 3),
    ("cuGraphInstantiateWithFlags", 1),
    ("cuGraphUpload", 1),
    ("cuGraphLaunch", 2),
];

/// Any failing driver call is reported by a one-line message and the exit code for device errors.
#[test]
fn error_of_each_driver_call_prints_one_line() {
    let gpus = Gpus::new("A100");
    let fails = |plant: &str| {
        let arguments = micro("--device cuda --set train.steps=3 --set train.name=x");
        let Said { code, err, .. } =
            said(&mut gpus.command(&arguments, &[("DRIVER_PLANT", plant)]));
        assert_eq!(code, NO_DEVICE, "{plant}\n{err}");
        assert_eq!(err.matches("error: ").count(), 1, "{plant}\n{err}");
        assert!(!err.contains("panicked"), "{plant}\n{err}");
        std::fs::remove_dir_all(gpus.place.join("runs/x")).ok();
    };
    for (function, call) in FATAL {
        fails(&format!("{function}:{call}=999"));
    }
    // Inject an invalid address in a kernel, an Xid, and memory used by other processes.
    for plant in ["cuGraphLaunch:2=700", "lost:150", "cuMemAlloc_v2:4=2"] {
        fails(plant);
    }
}

/// `bench` measures steps on one GPU of each architecture.
#[test]
fn bench_measures_emulated_step() {
    for model in ["A100", "H200"] {
        let gpus = Gpus::new(model);
        let said = good(&mut gpus.bench("--preset micro --device cuda --steps 2 --warmup 1"));
        assert_has(&said.out, &["images/s"]);
        assert_eq!(gpus.findings(), "");
    }
}
