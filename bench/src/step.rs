//! `bench --steps N`: images per second of the training step, and a breakdown of its time.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use configs::Config;
use device::Counts;
use engine::cli::{DeviceArgs, OpenDevice};
use engine::dataset::{DataSet, Split};
use engine::metrics::StepRecord;
use engine::progress::Progress;
use engine::runtime::Backend;
use engine::train::Trainer;
use graph::CpuExecutor;
use serde_json::{Value, json};

use crate::all_reduce::{AllReduceArgs, GroupOfOne};
use crate::full_size::{self, Padded};
use crate::parts::{anatomy, print_parts};
use crate::random_weights;
use crate::report::{commit, cpu, driver, gemm_gflops, percentile, write_json};

#[derive(Debug, Args)]
pub(crate) struct StepArgs {
    /// Steps to time.
    #[arg(long, default_value_t = 500)]
    steps: u64,
    /// Steps before the clock starts.
    #[arg(long, default_value_t = 5)]
    warmup: u64,
    /// Stop after so many seconds, with the steps made by then.
    #[arg(long)]
    seconds: Option<f64>,
    /// Config file, or the name of a preset.
    #[arg(long, default_value = "quickstart")]
    preset: String,
    /// Change a value of the config.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Train on drawn images that fill this padded shape, instead of the config's data.
    #[arg(long, value_name = "HEIGHTxWIDTH")]
    padded: Option<Padded>,
    /// Write the figures here.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    all_reduce: AllReduceArgs,
    #[command(flatten)]
    device: DeviceArgs,
}

/// The timed steps.
struct Timed {
    records: Vec<StepRecord>,
    /// What the device was asked to do in them; nothing on the CPU.
    asked: Asked,
}

/// Shares of a step, on the average.
#[derive(Default)]
struct Asked {
    graph_launches: f64,
    kernel_launches: f64,
    uploads: f64,
    host_waits: f64,
}

pub(crate) fn run(args: &StepArgs, open: OpenDevice, group: &GroupOfOne) -> anyhow::Result<()> {
    anyhow::ensure!(args.steps > 0, "--steps must be at least 1");
    let mut config = Config::load(&args.preset, &args.set)?;
    let opened = match args.all_reduce.is_asked() {
        true => args.device.open_with(|| (group.open)(&config))?,
        false => args.device.open_with(open)?,
    };
    let backend = opened.map_or(Backend::Cpu, Backend::Device);
    let division = args.all_reduce.division(&config, &backend.target(&config))?;
    let progress = Progress::loud();
    let data = match args.padded {
        Some(Padded(shape)) => full_size::open(&mut config, shape, &progress)?,
        None => DataSet::open(&config, Split::Train, &progress)?,
    };
    let mut trainer = random_weights::trainer_of(&config, &data, &backend, division)?;
    let shapes: Vec<String> = data.shapes.iter().map(ToString::to_string).collect();
    let name = match &backend {
        Backend::Cpu => cpu(),
        Backend::Device(device) => device.name(),
    };
    say!(
        "{name} | commit {} | preset {} | batch {} | padded {} | needs {:.0} MiB",
        commit(),
        args.preset,
        config.train.batch_size,
        shapes.join(" "),
        trainer.memory().bytes() as f64 / (1 << 20) as f64,
    );
    let timed = time(args, &mut trainer, &backend, &progress)?;
    let mut value = figures(&timed.records);
    value["steps_asked"] = args.steps.into();
    value["peak_bytes"] = trainer.memory().bytes().into();
    value["device"] = name.into();
    value["driver"] = driver().filter(|_| matches!(backend, Backend::Device(_))).into();
    value["commit"] = commit().into();
    value["preset"] = args.preset.clone().into();
    value["batch_size"] = config.train.batch_size.into();
    value["padded"] = shapes.into();
    print_figures(&value);
    args.all_reduce.tell(&config, group, &mut trainer, &mut value)?;
    match backend {
        Backend::Cpu => of_cpu(&mut trainer, timed.records.len(), &mut value)?,
        Backend::Device(_) => of_device(&trainer, &timed.asked, &mut value),
    }
    args.json.as_ref().map_or(Ok(()), |path| write_json(path, &value))
}

/// Makes the steps: warm-up first, then with the clock running.
fn time(
    args: &StepArgs,
    trainer: &mut Trainer,
    backend: &Backend,
    progress: &Progress,
) -> anyhow::Result<Timed> {
    let bar = progress.bar("steps", args.warmup + args.steps);
    for _ in 0..args.warmup {
        trainer.step(args.warmup)?;
        bar.inc(1);
    }
    trainer.cpu_executors().iter_mut().for_each(CpuExecutor::reset_timers);
    let counts = || match backend {
        Backend::Cpu => Counts::default(),
        Backend::Device(device) => device.counts(),
    };
    let before = counts();
    let limit = args.seconds.unwrap_or(f64::INFINITY);
    let mut records = Vec::with_capacity(args.steps as usize);
    trainer.restart_clock();
    let started = Instant::now();
    while (records.len() as u64) < args.steps && started.elapsed().as_secs_f64() < limit {
        records.push(trainer.step(args.warmup + args.steps)?);
        bar.inc(1);
    }
    let after = counts();
    bar.finish_and_clear();
    anyhow::ensure!(!records.is_empty(), "--seconds {limit} leaves no time for a step");
    // Steps that were begun ahead are in the counts, though not among the records.
    let begun = (records.len() + trainer.in_flight()) as f64;
    let each = |count: fn(&Counts) -> u64| (count(&after) - count(&before)) as f64 / begun;
    let asked = Asked {
        graph_launches: each(|c| c.graph_launches),
        kernel_launches: each(|c| c.kernel_launches),
        uploads: each(|c| c.uploads),
        host_waits: each(|c| c.host_waits),
    };
    Ok(Timed { records, asked })
}

/// The figures that every device has.
fn figures(records: &[StepRecord]) -> Value {
    let images: usize = records.iter().map(|r| r.images).sum();
    let seconds: f64 = records.iter().map(|r| r.step_seconds).sum();
    let ms: Vec<f64> = records.iter().map(|r| 1e3 * r.step_seconds).collect();
    let data_ms = 1e3 * records.iter().map(|r| r.data_seconds).sum::<f64>() / ms.len() as f64;
    json!({
        "images_per_second": images as f64 / seconds,
        "steps": records.len(),
        "skipped_steps": records.iter().filter(|r| !r.applied).count(),
        "finite_losses": records.iter().filter(|r| r.loss.is_finite()).count(),
        "seconds": seconds,
        "step_ms": {"p50": percentile(&ms, 0.5), "p95": percentile(&ms, 0.95)},
        "data_ms": data_ms,
    })
}

fn print_figures(value: &Value) {
    let number = |pointer: &str| value.pointer(pointer).and_then(Value::as_f64).unwrap_or(f64::NAN);
    let count = |key: &str| value[key].as_u64().unwrap_or(0);
    say!(
        "{:.2} images/s over {} of {} steps | step p50 {:.1} ms, p95 {:.1} ms | data wait {:.2} ms",
        number("/images_per_second"),
        count("steps"),
        count("steps_asked"),
        number("/step_ms/p50"),
        number("/step_ms/p95"),
        number("/data_ms"),
    );
    let (steps, finite, skipped) = (count("steps"), count("finite_losses"), count("skipped_steps"));
    if finite < steps || skipped > 0 {
        say!("{skipped} steps were skipped, {} had non-finite losses", steps - finite);
    }
}

/// What only the CPU shows: each part's time, against the rate of a plain product.
fn of_cpu(trainer: &mut Trainer, steps: usize, value: &mut Value) -> anyhow::Result<()> {
    let gemm = gemm_gflops()?;
    let parts = anatomy(trainer, steps as f64);
    say!("GEMM {gemm:.0} GFLOP/s");
    print_parts(&parts, gemm);
    value["gemm_gflops"] = gemm.into();
    let part = |p: &crate::parts::Part| (p.name.clone(), json!({"ms": p.ms, "gflop": p.gflop}));
    value["parts"] = Value::Object(parts.iter().map(part).collect());
    Ok(())
}

/// What only a device shows: its graphs, and what a step asks of the host.
fn of_device(trainer: &Trainer, asked: &Asked, value: &mut Value) {
    let kernels: Vec<usize> = trainer.graphs().iter().map(|graph| graph.kernels).collect();
    say!(
        "kernels in each captured graph {kernels:?} | a step: {:.2} graph launches, {:.2} single \
         launches, {:.2} copies to the device, {:.2} waits of the host",
        asked.graph_launches,
        asked.kernel_launches,
        asked.uploads,
        asked.host_waits,
    );
    say!("where the time of a step goes, part by part, is shown with --device cpu only");
    value["graph_kernels"] = kernels.into();
    value["a_step"] = json!({
        "graph_launches": asked.graph_launches,
        "kernel_launches": asked.kernel_launches,
        "uploads": asked.uploads,
        "host_waits": asked.host_waits,
    });
}
