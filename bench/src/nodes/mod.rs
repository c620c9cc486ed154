//! `bench nodes`: profiles one training step on a device. First each op is checked, then each
//! launch of the step is timed, then the entire graph, on its streams and on a single stream;
//! finally a timeline is recorded.

mod ceilings;
mod check;
mod measure;
mod rows;
mod shapes;

use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::{Args, ValueEnum};
use dali::order::PaddedShape;
use device::Device;
use engine::cli::DeviceArgs;
use engine::config::Config;
use engine::dataset::{DataSet, Split};
use engine::progress::Progress;
use engine::runtime::Backend;
use serde_json::{Value, json};

use crate::full_size;
use crate::random_weights;
use crate::report::{commit, driver, write_json};
use ceilings::Ceilings;
use check::Check;

#[derive(Debug, Args)]
pub(crate) struct NodesArgs {
    /// Steps per measurement, after one that is not measured.
    #[arg(long, default_value_t = 7)]
    repeats: usize,
    /// Config file, or the name of a preset.
    #[arg(long, default_value = "quickstart")]
    preset: String,
    /// Override a config value.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Train on synthetic images that fill this padded shape, instead of the config's data.
    #[arg(long, value_name = "HEIGHTxWIDTH")]
    padded: Option<PaddedShape>,
    /// JSON file with ceilings to compare launches with, {"copy_gb_per_s": .., "fp16_tflops": ..};
    /// default: the data sheet's peaks.
    #[arg(long, value_name = "FILE")]
    ceilings: Option<PathBuf>,
    /// Compare each op of a one-image step with the CPU reference before timing, instead of timing,
    /// or not at all.
    #[arg(
        long,
        value_enum,
        num_args = 0..=1,
        default_value = "first",
        default_missing_value = "only"
    )]
    check: When,
    /// Skip ops with more GFLOP than this in the check, since the CPU needs too long for them.
    #[arg(long, value_name = "GFLOP", default_value_t = 200.0)]
    check_gflop: f64,
    /// Number of table rows to print; the JSON file contains all rows.
    #[arg(long, default_value_t = 60)]
    rows: usize,
    /// Write the timeline of one replay to this file, a trace for Perfetto (ui.perfetto.dev) or
    /// chrome://tracing.
    #[arg(long, value_name = "FILE")]
    timeline: Option<PathBuf>,
    /// Write the figures to this file, updated after each stage.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only write the shapes of the step's convolutions and linear layers to this file; needs no
    /// GPU.
    #[arg(long, value_name = "FILE")]
    shapes: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum When {
    First,
    Only,
    Skip,
}

/// The figures so far; the file is rewritten after each addition.
struct Figures<'a> {
    value: Value,
    path: Option<&'a Path>,
}

impl Figures<'_> {
    fn add(&mut self, key: &str, value: Value) -> anyhow::Result<()> {
        self.value[key] = value;
        self.path.map_or(Ok(()), |path| write_json(path, &self.value))
    }
}

pub(crate) fn run(args: &NodesArgs) -> anyhow::Result<()> {
    anyhow::ensure!(args.repeats > 0, "--repeats must be at least 1");
    let mut config = Config::load(&args.preset, &args.set)?;
    if let Some(path) = &args.shapes {
        let Some(shape) = args.padded else {
            bail!("--shapes needs --padded HEIGHTxWIDTH, the shape of the step's images");
        };
        return write_json(path, &shapes::shapes(&config, &args.preset, shape)?);
    }
    let Backend::Device(device) = args.device.open()? else {
        bail!("profiling launch by launch needs a GPU; on the CPU, run `bench --steps N`");
    };
    let ceilings = Ceilings::of(args.ceilings.as_deref(), &device.name())?;
    let data = open_data(args, &mut config)?;
    let head = head(args, &config, &data, device.as_ref(), ceilings.as_ref());
    let mut figures = Figures { value: head, path: args.json.as_deref() };
    let mut checked: Option<Check> = None;
    if args.check != When::Skip {
        let most_flops = (1e9 * args.check_gflop) as u64;
        let check = check::run(&config, &data, &device, most_flops)?;
        figures.add("check", check.json.clone())?;
        checked = Some(check);
    }
    if args.check != When::Only {
        let trainer = random_weights::trainer(&config, &data, &Backend::Device(device.clone()))?;
        let standings = checked.as_ref().map(|check| &check.standings);
        let options = measure::Options {
            repeats: args.repeats,
            rows: args.rows,
            ceilings: ceilings.as_ref(),
            standings,
            timeline: args.timeline.as_deref(),
        };
        measure::run(trainer, &device, &options, &mut figures)?;
    }
    let failed = checked.map_or(0, |check| check.failed);
    anyhow::ensure!(failed == 0, "{failed} ops differ from the CPU reference");
    Ok(())
}

/// Opens the data of the step, and checks that it has exactly one padded shape.
fn open_data(args: &NodesArgs, config: &mut Config) -> anyhow::Result<DataSet> {
    let progress = Progress::loud();
    let data = match args.padded {
        Some(shape) => full_size::open(config, shape, None, &progress)?,
        None => DataSet::open(config, Split::Train, &progress)?,
    };
    anyhow::ensure!(
        data.shapes.len() == 1,
        "the images have {} padded shapes, but a step has one: choose it with --padded",
        data.shapes.len()
    );
    anyhow::ensure!(
        config.train.micro_steps == 1,
        "a step of several graphs cannot be profiled: add --set train.micro_steps=1"
    );
    Ok(data)
}

/// Prints and returns the conditions of the measurement: device, commit, preset, batch, shape,
/// ceilings.
fn head(
    args: &NodesArgs,
    config: &Config,
    data: &DataSet,
    device: &dyn Device,
    ceilings: Option<&Ceilings>,
) -> Value {
    let shape = data.shapes[0].to_string();
    let (name, commit, batch) = (device.name(), commit(), config.train.batch_size);
    say!("{name} | commit {commit} | preset {} | batch {batch} | padded {shape}", args.preset);
    match ceilings {
        Some(Ceilings { peak, source }) => {
            say!("ceilings: {:.0} TFLOP/s and {:.0} GB/s ({source})", peak.tflops, peak.gb_per_s)
        }
        None => say!("ceilings: unknown for this device; give measured ones with --ceilings"),
    }
    json!({
        "device": name, "driver": driver(), "commit": commit, "preset": args.preset,
        "batch_size": batch, "padded": shape, "repeats": args.repeats,
        "ceilings": ceilings.map(Ceilings::json),
    })
}
