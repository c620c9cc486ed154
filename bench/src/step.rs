//! `bench --steps N`: images per second of the training step, and a breakdown of its time.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use dali::order::PaddedShape;
use device::Counts;
use engine::EngineError;
use engine::cli::{DeviceArgs, Rank, in_group, open_gpu_in_group};
use engine::config::{Config, Data};
use engine::dataset::{DataSet, Split};
use engine::metrics::StepRecord;
use engine::progress::Progress;
use engine::runtime::Backend;
use engine::team::Team;
use engine::train::{Trainer, check_config, check_model};
use graph::CpuExecutor;
use kernels::boxes::max_positives;
use serde_json::{Value, json};

use crate::all_reduce::{AllReduceArgs, THROUGH};
use crate::full_size;
use crate::group::{self, GroupArgs};
use crate::parts::{anatomy, print_parts};
use crate::random_weights;
use crate::report::{commit, cpu, driver, gemm_gflops, percentile, processor_seconds, write_json};

#[derive(Debug, Args)]
pub(crate) struct StepArgs {
    /// Steps to time.
    #[arg(long, default_value_t = 500)]
    steps: u64,
    /// Steps before measuring starts.
    #[arg(long, default_value_t = 5)]
    warmup: u64,
    /// Stop after this many seconds, even if fewer steps are complete.
    #[arg(long)]
    seconds: Option<f64>,
    /// Config file, or the name of a preset. Default on the CPU: quickstart; on GPUs:
    /// torchvision_r50 with 12 images per GPU, which are synthetic and fill 800x1344 unless data is
    /// set.
    #[arg(long)]
    preset: Option<String>,
    /// Change a value of the config.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Train on synthetic images that fill this padded shape, instead of the config's data.
    #[arg(long, value_name = "HEIGHTxWIDTH")]
    padded: Option<PaddedShape>,
    /// Draw this many objects in each synthetic image, each of which becomes one positive RoI;
    /// count the positives of the timed steps (`train.accuracies`) and print their mean.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    positives: Option<u64>,
    /// Write the figures to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    group: GroupArgs,
    #[command(flatten)]
    all_reduce: AllReduceArgs,
    #[command(flatten)]
    device: DeviceArgs,
}

/// The timed steps.
struct Timed {
    records: Vec<StepRecord>,
    /// Requests to the device in the timed steps; zero on the CPU.
    asked: Asked,
    /// CPU seconds of all threads in the timed steps.
    processor: Option<f64>,
}

/// Average number of requests to the device per step.
#[derive(Default)]
struct Asked {
    graph_launches: f64,
    kernel_launches: f64,
    uploads: f64,
    host_waits: f64,
}

/// The default presets.
const ON_CPU: &str = "quickstart";
const ON_GPU: &str = "torchvision_r50";
/// Images per GPU, and their padded shape, with the default GPU preset.
const GPU_IMAGES: usize = 12;
const GPU_PADDED: PaddedShape = PaddedShape { height: 800, width: 1344 };

impl StepArgs {
    fn preset(&self, on_gpu: bool) -> &str {
        self.preset.as_deref().unwrap_or(if on_gpu { ON_GPU } else { ON_CPU })
    }

    /// The config of a bench with `ranks` ranks.
    fn config(&self, on_gpu: bool, ranks: usize) -> anyhow::Result<Config> {
        let mut set = self.set.clone();
        if on_gpu && self.preset.is_none() {
            set.insert(0, format!("train.batch_size={}", GPU_IMAGES * ranks));
        }
        Ok(Config::load(self.preset(on_gpu), &set)?)
    }

    /// The padded shape that synthetic images fill; `None` if the config's own data is used.
    fn padded(&self, config: &Config, on_gpu: bool) -> Option<PaddedShape> {
        let is_usual = on_gpu && self.preset.is_none() && config.data == Data::default();
        self.padded.or(is_usual.then_some(GPU_PADDED))
    }
}

pub(crate) fn run(args: &StepArgs) -> anyhow::Result<()> {
    anyhow::ensure!(args.steps > 0, "--steps must be at least 1");
    // The ranks join before the device is known, so the CPU's config is used: the settings for
    // joining are equal in both default presets.
    let config = args.config(false, 1)?;
    let measured = in_group(&args.group.ranks, &args.device, &config, |rank| {
        measure(args, rank, &config).map_err(of_engine)
    });
    Ok(measured?)
}

/// Runs the bench of one rank.
fn measure(args: &StepArgs, rank: &Rank<'_>, config: &Config) -> anyhow::Result<()> {
    let ranks = rank.group().ranks();
    group::check(&args.group, ranks, args.all_reduce.is_asked(), args.seconds.is_some())?;
    let (backend, team) = opened(args, rank, config)?;
    let on_gpu = matches!(backend, Backend::Device(_));
    let mut config = args.config(on_gpu, ranks)?;
    check_config(&team, &config)?;
    let division = match ranks {
        1 => args.all_reduce.division(&config, &backend.target(&config))?,
        _ => group::division(&config, &backend, &team)?,
    };
    let progress = rank.progress();
    let data = data_of(args, &mut config, on_gpu, &team, &progress)?;
    let alone = match args.group.efficiency {
        true => group::single_rank(&config, &team, |config| {
            let mut trainer = random_weights::trainer(config, &data, &backend)?;
            Ok(figures(&time(args, &mut trainer, &backend, &Team::single(), &progress)?.records))
        })?,
        false => None,
    };
    let mut trainer = random_weights::trainer_of(&config, &data, &backend, division)?;
    check_model(&team, &data, trainer.state())?;
    let shapes: Vec<String> = data.shapes.iter().map(ToString::to_string).collect();
    let name = match &backend {
        Backend::Cpu => cpu(),
        Backend::Device(device) => device.name(),
    };
    if team.is_first() {
        let batch = config.train.batch_size;
        let on = if ranks > 1 { format!(" on {ranks} ranks") } else { String::new() };
        let (preset, shapes) = (args.preset(on_gpu), shapes.join(" "));
        say!(
            "{name} | commit {} | preset {preset} | batch {batch}{on} | padded {shapes} | needs \
             {:.0} MiB",
            commit(),
            trainer.memory().bytes() as f64 / (1 << 20) as f64,
        );
    }
    let timed = time(args, &mut trainer, &backend, &team, &progress)?;
    let mut value = figures(&timed.records);
    if ranks > 1 {
        let through = if on_gpu { THROUGH } else { "sockets" };
        group::gather(&team, through, alone, &mut value)?;
    }
    if !team.is_first() {
        return Ok(());
    }
    value["steps_asked"] = args.steps.into();
    value["peak_bytes"] = trainer.memory().bytes().into();
    value["device"] = name.into();
    value["driver"] = driver().filter(|_| on_gpu).into();
    value["commit"] = commit().into();
    value["preset"] = args.preset(on_gpu).into();
    value["batch_size"] = config.train.batch_size.into();
    value["padded"] = shapes.into();
    print_figures(&value);
    match ranks {
        1 => args.all_reduce.report(&config, &mut trainer, &mut value)?,
        _ => group::print(&value),
    }
    match backend {
        Backend::Cpu => of_cpu(&mut trainer, &timed, &mut value)?,
        Backend::Device(_) => of_device(&trainer, &timed.asked, &mut value),
    }
    args.json.as_ref().map_or(Ok(()), |path| write_json(path, &value))
}

/// The device of this rank, and its connection to the other ranks.
fn opened(args: &StepArgs, rank: &Rank<'_>, config: &Config) -> anyhow::Result<(Backend, Team)> {
    if rank.group().ranks() > 1 {
        return Ok(rank.open(&args.device, config)?);
    }
    if !args.all_reduce.is_asked() {
        return Ok((args.device.open()?, Team::single()));
    }
    let cuda = args.device.open_with(|| open_gpu_in_group(config))?;
    let backend = cuda.map_or(Backend::Cpu, |cuda| Backend::Device(Arc::new(cuda)));
    Ok((backend, Team::single()))
}

/// The training data, generated once on each host.
fn data_of(
    args: &StepArgs,
    config: &mut Config,
    on_gpu: bool,
    team: &Team,
    progress: &Progress,
) -> Result<DataSet, EngineError> {
    let padded = args.padded(config, on_gpu);
    let objects = args.positives.map(|count| count as usize);
    if let Some(count) = objects {
        let roi = &config.model.roi;
        let most = max_positives(roi.batch_size_per_image, roi.positive_fraction);
        if padded.is_none() || count > most {
            return Err(EngineError::Usage(format!(
                "--positives is {count}: it needs synthetic images (--padded HEIGHTxWIDTH), and a step \
                 samples at most {most} an image"
            )));
        }
        config.train.accuracies = true;
    }
    team.first_of_host_first("the data of a host", || match padded {
        Some(shape) => full_size::open(config, shape, objects, progress).map_err(of_engine),
        None => DataSet::open(config, Split::Train, progress),
    })
}

/// Converts an error into one for the command line, with its entire chain of causes.
fn of_engine(fault: anyhow::Error) -> EngineError {
    match fault.downcast() {
        Ok(fault) => fault,
        Err(fault) => EngineError::Usage(format!("{fault:#}")),
    }
}

/// Runs the steps: warm-up first, then the timed ones.
fn time(
    args: &StepArgs,
    trainer: &mut Trainer,
    backend: &Backend,
    team: &Team,
    progress: &Progress,
) -> anyhow::Result<Timed> {
    let bar = progress.bar("steps", args.warmup + args.steps);
    for step in 0..args.warmup {
        team.set_doing(step + 1, "warming up");
        trainer.step(args.warmup)?;
        bar.inc(1);
    }
    team.meet("the end of the warm-up")?;
    trainer.cpu_executors().iter_mut().for_each(CpuExecutor::reset_timers);
    let counts = || match backend {
        Backend::Cpu => Counts::default(),
        Backend::Device(device) => device.counts(),
    };
    let before = counts();
    let limit = args.seconds.unwrap_or(f64::INFINITY);
    let mut records = Vec::with_capacity(args.steps as usize);
    trainer.restart_clock();
    let busy = processor_seconds();
    let started = Instant::now();
    while (records.len() as u64) < args.steps && started.elapsed().as_secs_f64() < limit {
        team.set_doing(args.warmup + 1 + records.len() as u64, "measuring");
        records.push(trainer.step(args.warmup + args.steps)?);
        bar.inc(1);
    }
    let after = counts();
    let processor = busy.zip(processor_seconds()).map(|(before, after)| after - before);
    bar.finish_and_clear();
    anyhow::ensure!(!records.is_empty(), "--seconds {limit} leaves no time for a step");
    // The counts include steps that are still in flight, which have no record yet, so these are
    // added.
    let begun = (records.len() + trainer.in_flight()) as f64;
    let each = |count: fn(&Counts) -> u64| (count(&after) - count(&before)) as f64 / begun;
    let asked = Asked {
        graph_launches: each(|c| c.graph_launches),
        kernel_launches: each(|c| c.kernel_launches),
        uploads: each(|c| c.uploads),
        host_waits: each(|c| c.host_waits),
    };
    Ok(Timed { records, asked, processor })
}

/// The figures that are reported on all devices, including the CPU.
fn figures(records: &[StepRecord]) -> Value {
    let images: usize = records.iter().map(|r| r.images).sum();
    let seconds: f64 = records.iter().map(|r| r.step_seconds).sum();
    let ms: Vec<f64> = records.iter().map(|r| 1e3 * r.step_seconds).collect();
    let counted = |r: &StepRecord| {
        let found = r.accuracies.iter().find(|(name, _)| *name == "roi_head/num_fg_samples");
        found.map_or(0.0, |(_, positives)| f64::from(*positives))
    };
    let positives = records.iter().map(counted).sum::<f64>() / ms.len() as f64;
    let data_ms = 1e3 * records.iter().map(|r| r.data_seconds).sum::<f64>() / ms.len() as f64;
    json!({
        "images_per_second": images as f64 / seconds,
        "steps": records.len(),
        "skipped_steps": records.iter().filter(|r| !r.applied).count(),
        "finite_losses": records.iter().filter(|r| r.loss.is_finite()).count(),
        "seconds": seconds,
        "step_ms": {"p50": percentile(&ms, 0.5), "p95": percentile(&ms, 0.95)},
        "data_ms": data_ms,
        // 0 if positives are not counted, which needs `train.accuracies`.
        "positives_per_image": positives,
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
    let positives = number("/positives_per_image");
    if positives > 0.0 {
        say!("{positives:.1} positive RoIs an image, counted in these steps");
    }
    let (steps, finite, skipped) = (count("steps"), count("finite_losses"), count("skipped_steps"));
    if finite < steps || skipped > 0 {
        say!("{skipped} steps were skipped, {} had non-finite losses", steps - finite);
    }
}

/// Prints the measurements on a CPU: the time of each part of the model, and its FLOP rate relative
/// to a plain GEMM.
fn of_cpu(trainer: &mut Trainer, timed: &Timed, value: &mut Value) -> anyhow::Result<()> {
    let steps = timed.records.len() as f64;
    let processor_ms = timed.processor.map(|seconds| 1e3 * seconds / steps);
    let gemm = gemm_gflops()?;
    let parts = anatomy(trainer, steps);
    let processor = processor_ms.map(|ms| format!(" | CPU time {ms:.0} ms per step"));
    say!("GEMM {gemm:.0} GFLOP/s{}", processor.unwrap_or_default());
    value["processor_ms"] = processor_ms.into();
    print_parts(&parts, gemm);
    value["gemm_gflops"] = gemm.into();
    let part = |p: &crate::parts::Part| (p.name.clone(), json!({"ms": p.ms, "gflop": p.gflop}));
    value["parts"] = Value::Object(parts.iter().map(part).collect());
    Ok(())
}

/// Prints the measurements on a GPU: kernels per graph, and requests to the device per step.
fn of_device(trainer: &Trainer, asked: &Asked, value: &mut Value) {
    let kernels: Vec<usize> = trainer.graphs().iter().map(|graph| graph.kernels).collect();
    say!(
        "kernels in each captured graph {kernels:?} | a step: {:.2} graph launches, {:.2} single \
         launches, {:.2} copies to the device, {:.2} host syncs",
        asked.graph_launches,
        asked.kernel_launches,
        asked.uploads,
        asked.host_waits,
    );
    say!("for the time of each node use `bench nodes`; only --device cpu lists parts here");
    value["graph_kernels"] = kernels.into();
    value["a_step"] = json!({
        "graph_launches": asked.graph_launches,
        "kernel_launches": asked.kernel_launches,
        "uploads": asked.uploads,
        "host_waits": asked.host_waits,
    });
}
