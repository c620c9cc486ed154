//! `bench --steps N`: images a second of the training step, and where its time goes.

use std::path::PathBuf;

use clap::Args;
use configs::Config;
use engine::dataset::{DataSet, Split};
use engine::progress::Progress;
use engine::runtime::Backend;
use engine::train::Trainer;
use graph::CpuExecutor;
use graph::report::{node_cost, top_part};
use serde_json::json;

use crate::report::{device, gemm_gflops, percentile, write_json};

#[derive(Debug, Args)]
pub(crate) struct StepArgs {
    /// Steps to time.
    #[arg(long, default_value_t = 500)]
    steps: u64,
    /// Steps before the clock starts.
    #[arg(long, default_value_t = 5)]
    warmup: u64,
    /// Config file, or the name of a preset.
    #[arg(long, default_value = "quickstart")]
    preset: String,
    /// Change a value of the config.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Write the figures here.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Time and work of one part of the step.
struct Part {
    name: String,
    ms: f64,
    gflop: f64,
}

pub(crate) fn run(args: &StepArgs) -> anyhow::Result<()> {
    anyhow::ensure!(args.steps > 0, "--steps must be at least 1");
    let config = Config::load(&args.preset, &args.set)?;
    let progress = Progress::loud();
    let data = DataSet::open(&config, Split::Train, &progress)?;
    let mut trainer = Trainer::new(&config, &data, &Backend::Cpu)?;
    let memory = trainer.memory();
    let peak_bytes = memory.bytes();
    let gemm = gemm_gflops()?;
    println!(
        "{} | preset {} | batch {} | needs {:.0} MiB | GEMM {gemm:.0} GFLOP/s",
        device(),
        args.preset,
        config.train.batch_size,
        peak_bytes as f64 / (1 << 20) as f64,
    );
    let bar = progress.bar("steps", args.warmup + args.steps);
    for _ in 0..args.warmup {
        trainer.step(args.warmup)?;
        bar.inc(1);
    }
    trainer.cpu_executors().iter_mut().for_each(CpuExecutor::reset_timers);
    trainer.restart_clock();
    let mut records = Vec::with_capacity(args.steps as usize);
    for _ in 0..args.steps {
        records.push(trainer.step(args.warmup + args.steps)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let images: usize = records.iter().map(|r| r.images).sum();
    let seconds: f64 = records.iter().map(|r| r.step_seconds).sum();
    let step_ms: Vec<f64> = records.iter().map(|r| 1e3 * r.step_seconds).collect();
    let data_ms = 1e3 * records.iter().map(|r| r.data_seconds).sum::<f64>() / step_ms.len() as f64;
    let images_per_second = images as f64 / seconds;
    let parts = anatomy(&mut trainer, records.len() as f64);
    let (p50, p95) = (percentile(&step_ms, 0.5), percentile(&step_ms, 0.95));
    println!(
        "{images_per_second:.2} images/s over {} steps | step p50 {p50:.1} ms, p95 {p95:.1} ms | \
         data wait {data_ms:.2} ms",
        args.steps
    );
    print_parts(&parts, gemm);
    if let Some(path) = &args.json {
        let parts: serde_json::Map<_, _> =
            parts.iter().map(|p| (p.name.clone(), json!({"ms": p.ms, "gflop": p.gflop}))).collect();
        let value = json!({
            "images_per_second": images_per_second,
            "steps": args.steps,
            "step_ms": {"p50": p50, "p95": p95},
            "data_ms": data_ms,
            "peak_bytes": peak_bytes,
            "device": device(),
            "gemm_gflops": gemm,
            "preset": args.preset,
            "batch_size": config.train.batch_size,
            "parts": parts,
        });
        write_json(path, &value)?;
    }
    Ok(())
}

/// Mean milliseconds and GFLOP a step of each part and pass, the longest first.
fn anatomy(trainer: &mut Trainer, steps: f64) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for executor in trainer.cpu_executors().iter() {
        let (program, runs) = (executor.program(), executor.runs() as f64);
        for (node, seconds) in program.nodes().iter().zip(executor.node_seconds()) {
            let name = format!("{} {}", top_part(&node.part), node.pass);
            let ms = 1e3 * seconds * runs / steps;
            let gflop = node_cost(program, node).flops as f64 * runs / steps / 1e9;
            match parts.iter_mut().find(|p| p.name == name) {
                Some(part) => {
                    part.ms += ms;
                    part.gflop += gflop;
                }
                None => parts.push(Part { name, ms, gflop }),
            }
        }
    }
    parts.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    parts
}

fn print_parts(parts: &[Part], gemm: f64) {
    let total: f64 = parts.iter().map(|p| p.ms).sum();
    println!("{:<26} {:>9} {:>7} {:>10} {:>12}", "part", "ms", "share", "GFLOP", "of GEMM rate");
    for part in parts {
        println!(
            "{:<26} {:>9.2} {:>6.1}% {:>10.3} {:>11.0}%",
            part.name,
            part.ms,
            100.0 * part.ms / total,
            part.gflop,
            100.0 * part.gflop / (part.ms / 1e3) / gemm,
        );
    }
    let gflop: f64 = parts.iter().map(|p| p.gflop).sum();
    println!(
        "{:<26} {:>9.2} {:>6.1}% {:>10.3} {:>11.0}%   (GFLOP at capacity: padding rows of RoIs count)",
        "all",
        total,
        100.0,
        gflop,
        100.0 * gflop / (total / 1e3) / gemm,
    );
}
