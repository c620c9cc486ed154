//! `bench nodes` on the emulated driver: its report of a step is complete, and instrumented steps
//! do not affect the training after them.

mod common;

use std::sync::Arc;

use common::driver::Gpus;
use common::{Place, Said, as_count, as_list, as_number, said};
use device::Device;
use engine::dataset::{DataSet, Split};
use engine::progress::Progress;
use engine::runtime::Backend;
use engine::train::Trainer;
use graph::exec::device::Stopwatch;

fn nodes(gpus: &Gpus, arguments: &str) -> Said {
    said(&mut gpus.bench(&format!("nodes {arguments}")))
}

#[test]
fn bench_nodes_reports_every_node_of_a_step() {
    let gpus = Gpus::new("A100");
    let place = &gpus.place;
    std::fs::write(place.path().join("c.json"), r#"{"copy_gb_per_s": 1, "fp16_tflops": 0.001}"#)
        .expect("a file");
    let said = nodes(
        &gpus,
        "--preset micro --device cuda --repeats 1 --rows 3 --ceilings c.json --json n.json \
         --timeline t.json",
    );
    assert_eq!(said.code, 0, "{}", said.err);
    let told = place.json("n.json");
    let number = |pointer: &str| told.pointer(pointer).and_then(|v| v.as_f64()).expect(pointer);
    assert!(number("/check/agree") > 120.0 && number("/check/worst_error_over_allowed") < 1.0);
    assert_eq!(told["check"]["failed"].as_array().map(Vec::len), Some(0));
    let rows = as_list(&told["rows"]);
    let kernels: u64 = rows
        .iter()
        .map(|row| {
            let each = as_list(&row["kernels"]).len() as u64;
            each * as_count(&row["count"])
        })
        .sum();
    assert_eq!(told["launches"]["kernels"], kernels, "a row for each launch");
    let us: f64 = rows.iter().map(|row| as_number(&row["us"])).sum();
    assert!((us / 1e3 - number("/launches/sum_ms")).abs() < 1e-6 * us);
    assert!(rows.iter().all(|row| as_number(&row["us"]) >= 0.0));
    for row in rows.iter().filter(|row| row["pass"] != "step") {
        assert_eq!(row["checked"], "agrees", "{row}");
        assert!(row["share_of_ceiling"].as_f64().is_some_and(|share| share >= 0.0), "{row}");
    }
    assert!(number("/graph/ms") > 0.0 && number("/graph_on_one_stream/ms") > 0.0);
    let gap = number("/graph/ms") - number("/launches/sum_ms");
    assert!((number("/gap_ms") - gap).abs() < 1e-9);
    assert!(number("/event_cost/empty_us") < number("/event_cost/launch_us"));
    let trace = place.json("t.json");
    let works: usize = rows.iter().map(|row| as_list(&row["nodes"]).len()).sum();
    let events = as_list(&trace["traceEvents"]);
    assert_eq!(events.len(), works, "an event for each node and both ends");
    for event in events {
        assert_eq!(event["ph"], "X", "{event}");
        assert!(as_number(&event["ts"]) >= 0.0 && as_number(&event["dur"]) >= 0.0, "{event}");
    }
    let about = &trace["otherData"];
    assert_eq!((&about["preset"], &about["padded"]), (&"micro".into(), &"64x64".into()));
}

#[test]
fn bench_nodes_check_lists_skipped_nodes() {
    let gpus = Gpus::new("A100");
    let said = nodes(&gpus, "--preset micro --device cuda --check --check-gflop 0.0001");
    assert_eq!(said.code, 0, "{}", said.err);
    let skipped = said.out.lines().filter(|line| line.starts_with("SKIPPED: ")).count();
    assert!(skipped > 0 && said.out.contains(&format!("0 differ, {skipped} skipped")));
    assert!(!said.out.contains("sum of"), "only the check was asked for");
    // Each node is printed before it runs.
    assert!(said.err.contains("check 1: ") && said.err.matches("check ").count() > 120);
}

#[test]
fn node_shapes_are_written_without_device_and_bad_options_are_rejected() {
    let gpus = Gpus::new("A100");
    let place = &gpus.place;
    let said = nodes(&gpus, "--preset torchvision_r50 --padded 800x1344 --shapes s.json");
    assert_eq!(said.code, 0, "{}", said.err);
    let told = place.json("s.json");
    assert_eq!((&told["preset"], &told["padded"]), (&"torchvision_r50".into(), &"800x1344".into()));
    assert!(told["shapes"].as_array().is_some_and(|shapes| shapes.len() > 90));
    for (arguments, words) in [
        ("--preset micro --shapes s.json", "--shapes needs --padded"),
        ("--preset micro --device cpu", "launch by launch needs a GPU"),
        ("--preset micro --device cuda --ceilings none.json", "none.json"),
        (
            "--preset micro --device cuda --set train.micro_steps=2 --set train.images_per_group=1",
            "add --set train.micro_steps=1",
        ),
    ] {
        let said = nodes(&gpus, arguments);
        assert!(said.code == 1 && said.err.contains(words), "{arguments}: {}", said.err);
    }
}

/// Steps that are timed, captured with timestamps, or recaptured are bit-identical to ordinary
/// ones.
#[test]
fn measured_steps_do_not_change_training() {
    let place = Place::new();
    let config = place.config(&[]);
    let data = DataSet::open(&config, Split::Train, &Progress::quiet()).expect("drawn images");
    let trainer = || {
        let device: Arc<dyn Device> = Arc::new(test_gpu::open("A100"));
        let trainer = Trainer::new(&config, &data, &Backend::Device(device.clone()));
        (device, trainer.unwrap_or_else(|e| panic!("{e}")))
    };
    let (_, mut plain) = trainer();
    let (device, mut measured) = trainer();
    let mut watch = Stopwatch::new(device, measured.graphs()[0].kernels).expect("memory");
    let executor = measured.device_executor().expect("a device");
    let stamped = executor.capture_with_stamps(0).expect("a capture");
    for step in 1..=4 {
        let record = match step {
            1 => measured.step_by(&mut |executor, program| {
                executor.submit_launches(program, &mut watch).map(drop)
            }),
            3 => measured.step_by(&mut |executor, _| {
                executor.submit_with_stamps(&stamped, &mut watch).map(drop)
            }),
            _ => measured.step(step),
        };
        let (got, want) = (record.expect("a step"), plain.step(step).expect("a step"));
        assert_eq!((got.step, got.loss, got.grad_norm), (step, want.loss, want.grad_norm));
    }
    let states = [&mut plain, &mut measured].map(|trainer| {
        let state = trainer.state().fetch().expect("the state");
        state.iter().map(|(name, t)| (name.to_string(), t.bytes().to_vec())).collect::<Vec<_>>()
    });
    assert!(states[0] == states[1], "bit-identical");
}
