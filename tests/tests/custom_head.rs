//! The custom head of `engine/examples/custom_head.rs`: it trains, resumes, evaluates and predicts.
//! The test runs in a separate process, since heads are registered per process.

// The test program contains the head, and starts itself again with the arguments of `onegraph`.
#[allow(dead_code)]
#[path = "../../engine/examples/custom_head.rs"]
mod example;

use std::error::Error;
use std::path::Path;
use std::process::{Command, ExitCode};

use engine::model::roi_heads::register;
use engine::predictor::Predictor;
use engine::runtime::Backend;
use serde_json::Value;

const COMMAND: &str = "ONEGRAPH_TEST_COMMAND";

fn main() -> ExitCode {
    register(|_| Some(Box::new(example::ExtremesHead)));
    if std::env::var_os(COMMAND).is_some() {
        return engine::cli::main();
    }
    match custom_head_trains_and_predicts() {
        Ok(()) => {
            println!("test custom_head_trains_and_predicts ... ok");
            ExitCode::SUCCESS
        }
        Err(fault) => {
            println!("test custom_head_trains_and_predicts ... FAILED: {fault}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the command; returns what it prints.
fn run(folder: &Path, arguments: &str) -> Result<String, Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments.split_whitespace()).current_dir(folder).env(COMMAND, "1");
    let output = command.env("CUDA_VISIBLE_DEVICES", "").output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout)?),
        false => Err(format!("{arguments}: {said}").into()),
    }
}

fn custom_head_trains_and_predicts() -> Result<(), Box<dyn Error>> {
    let place = tempfile::tempdir()?;
    let folder = place.path();
    let train = "train micro --set eval.draw_images=0 \
                 --set loss_weights.mask=0.5 --set data.synthetic.train_images=64";
    run(folder, &format!("{train} --set train.steps=300 --set train.batch_size=4"))?;
    let metrics = std::fs::read_to_string(folder.join("runs/micro/metrics.jsonl"))?;
    let records = metrics.lines().map(serde_json::from_str::<Value>);
    let losses = records.filter_map(|record| record.ok()?["loss_extremes"].as_f64());
    let losses: Vec<f64> = losses.collect();
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let (first, last) = (mean(&losses[..20]), mean(&losses[280..]));
    if losses.len() != 300 || last > 0.6 * first {
        return Err(format!("{} losses, {first} to {last}", losses.len()).into());
    }
    // Random points, or points of a different object, would be off by about half of a side.
    let scored = "eval --run runs/micro --set eval.draw_images=0 --set eval.train_set=true";
    let scores = run(folder, scored)?;
    let error = scores.lines().find_map(|line| line.strip_prefix("extremes_error "));
    let error: f64 = error.ok_or("no score of the head")?.parse()?;
    if !(0.001..0.4).contains(&error) || !metrics.contains("\"extremes_error\":") {
        return Err(format!("the head's points are off by {error}").into());
    }
    run(folder, "export --run runs/micro --format onnx --out micro.onnx")?;
    let file = std::fs::read(folder.join("micro.onnx"))?;
    if !file.windows(8).any(|part| part == b"extremes") {
        return Err("the ONNX file has no output of the head".into());
    }

    let mut predictor = Predictor::from_run(
        &folder.join("runs/micro"),
        &["model.detections.score_threshold=0.01".into()],
        &Backend::Cpu,
    )?;
    let images = folder.join("runs/data/micro/train-64x64-seed0/images");
    let mut points = 0;
    for image in std::fs::read_dir(images)? {
        for object in predictor.predict_file(&image?.path())? {
            let [x1, y1, x2, y2] = object.bbox;
            let found = object.further.get("extremes").ok_or("no extremes")?;
            let [top, right, bottom, left] = [0, 2, 4, 6].map(|k| [found[k], found[k + 1]]);
            let edges = (top[1], right[0], bottom[1], left[0]) == (y1, x2, y2, x1);
            let near = |share: f32| (-0.5..1.5).contains(&share);
            let inside = near((top[0] - x1) / (x2 - x1)) && near((left[1] - y1) / (y2 - y1));
            if !(edges && inside) {
                return Err(format!("{:?} has extremes {found:?}", object.bbox).into());
            }
            points += 1;
        }
    }
    if points > 0 { Ok(()) } else { Err("nothing was found".into()) }
}
