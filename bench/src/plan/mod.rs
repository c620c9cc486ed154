//! `bench plan`: the predicted time of a training step, node by node, and how it scales over GPUs.
//! The step is the actual Program with its schedule and launches; a cost model ([`kernels::time`])
//! predicts a range for each duration.

#[cfg(test)]
mod goals;
mod model;
mod network;
mod timeline;

use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use clap::Args;
use dali::order::PaddedShape;
use device::Gpu;
use engine::config::{Config, Precision};
use kernels::time::Case;
use serde::Serialize;
use serde_json::json;

use crate::report::{commit, write_json};
use model::{Model, Setting, StepPlan};
use network::Network;

/// Maximum number of ranks for which the formulas are valid.
const MAX_GPUS: usize = 4096;
const MAX_IMAGES: usize = 256;

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Number of GPUs, with one rank each.
    #[arg(long, value_name = "N", default_value_t = 8)]
    gpus: usize,
    /// The GPU: a100, h100 or h200.
    #[arg(long = "device", visible_alias = "gpu", value_name = "GPU", default_value = "h100")]
    gpu: String,
    #[command(flatten)]
    network: Network,
    /// Config file, or the name of a preset.
    #[arg(long, default_value = "mlperf_r50")]
    preset: String,
    /// Change a value of the config.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Images per GPU. Default: train.images_per_group.
    #[arg(long)]
    images: Option<usize>,
    /// Padded shape of the images. Default: input.min_size by input.max_size, padded.
    #[arg(long, value_name = "HEIGHTxWIDTH")]
    padded: Option<PaddedShape>,
    /// Average number of positive RoIs per image; the mask head processes only these.
    #[arg(long, default_value_t = 64.0)]
    positives: f64,
    /// Write the figures to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The step with `gpus` GPUs; each list is ordered from the fast to the slow case.
#[derive(Debug, Serialize)]
struct Scaling {
    gpus: usize,
    step_ms: [f64; 3],
    images_per_second_per_gpu: [f64; 3],
}

impl PlanArgs {
    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            (1..=MAX_GPUS).contains(&self.gpus),
            "--gpus {}: must be from 1 to {MAX_GPUS}",
            self.gpus
        );
        ensure!(
            self.images.is_none_or(|images| (1..=MAX_IMAGES).contains(&images)),
            "--images {}: must be from 1 to {MAX_IMAGES}",
            self.images.unwrap_or(0)
        );
        for (name, value) in [
            ("--network-gb-s", self.network.gb_per_s),
            ("--hop-us", self.network.hop_us),
            ("--positives", self.positives),
        ] {
            ensure!(value.is_finite() && value > 0.0, "{name} {value}: must be above 0");
        }
        Ok(())
    }

    /// The images' padded shape.
    fn shape(&self, config: &Config) -> anyhow::Result<PaddedShape> {
        let divisor = config.input.size_divisor;
        let shape = self.padded.unwrap_or(own_shape(config));
        ensure!(
            shape.height.is_multiple_of(divisor) && shape.width.is_multiple_of(divisor),
            "--padded {shape}: both sides must be multiples of input.size_divisor, which is \
             {divisor}"
        );
        Ok(shape)
    }
}

/// The largest padded shape of a config.
fn own_shape(config: &Config) -> PaddedShape {
    let side = |size: usize| size.next_multiple_of(config.input.size_divisor);
    PaddedShape { height: side(config.input.min_size), width: side(config.input.max_size) }
}

pub(crate) fn run(args: &PlanArgs) -> anyhow::Result<()> {
    args.check()?;
    let Some(gpu) = Gpu::named(&args.gpu) else {
        bail!("--device {} is not known; choose one of {}", args.gpu, Gpu::NAMES.join(", "));
    };
    let config = Config::load(&args.preset, &args.set)?;
    ensure!(
        config.train.micro_steps == 1,
        "a step of several graphs is not planned: add --set train.micro_steps=1"
    );
    ensure!(
        config.train.precision == Precision::Fp16,
        "a step in {} is not planned: its GEMMs are not optimized; add --set \
         train.precision=fp16",
        config.train.precision.name()
    );
    let images = args.images.unwrap_or(config.train.images_per_group);
    let shape = args.shape(&config)?;
    let of_gpus = |gpus| {
        let about = || format!("{}, {images} images of {shape}", args.preset);
        Model::new(&config, gpus, images, shape, &gpu).with_context(about)
    };
    let model = of_gpus(args.gpus)?;
    let step = |model: &Model, gpus, case| {
        model.step(&Setting { case, gpus, network: args.network, positives: args.positives })
    };
    let scaling = |model: &Model, gpus| {
        let step_ms = Case::ALL.map(|case| step(model, gpus, case).ms);
        Scaling { gpus, step_ms, images_per_second_per_gpu: rates(images, step_ms) }
    };
    let expected = step(&model, args.gpus, Case::Expected);
    let mut rows = vec![scaling(&of_gpus(1)?, 1)];
    let doubled = std::iter::successors(Some(2), |gpus| Some(2 * gpus));
    rows.extend(doubled.take_while(|gpus| *gpus < args.gpus).map(|gpus| scaling(&model, gpus)));
    rows.extend((args.gpus > 1).then(|| scaling(&model, args.gpus)));
    say!("An estimate by a model: docs/measurements-gpu.md has what was measured.");
    say!("Several GPUs are not verified on hardware.");
    say!(
        "{} on {} {} | {images} images of {shape} per GPU, {} positive RoIs per image",
        args.preset,
        args.gpus,
        args.gpu.to_uppercase(),
        args.positives
    );
    print_nodes(&expected, images);
    print_scaling(&rows, &args.network);
    let Some(path) = &args.json else { return Ok(()) };
    let value = json!({
        "kind": "plan",
        "verified_on_hardware": false,
        "commit": commit(),
        "preset": args.preset,
        "gpu": args.gpu,
        "gpus": args.gpus,
        "images_per_gpu": images,
        "padded": shape.to_string(),
        "positives_per_image": args.positives,
        "network": args.network,
        "nodes": expected.nodes,
        "scaling_fast_expected_slow": rows,
    });
    write_json(path, &value)
}

/// Prints all nodes in launch order, and their totals.
fn print_nodes(step: &StepPlan, images: usize) {
    say!("");
    say!("   start       ms    floor   GFLOP       MB  s  node: kernels");
    for node in &step.nodes {
        let done = match node.summed_bytes {
            0 => node.kernels.join(", "),
            bytes => format!("all-reduce of {:.2} MB", bytes as f64 / 1e6),
        };
        say!(
            "{:>8.3} {:>8.3} {:>8.3} {:>7.1} {:>8.1}  {}  {}: {done}",
            node.start_ms,
            node.ms,
            node.floor_ms,
            node.flops / 1e9,
            node.bytes / 1e6,
            node.stream,
            node.name,
        );
    }
    say!(
        "{} nodes, {} kernels, {:.3} TFLOP and {:.2} GB per image, floor {:.2} ms; one after \
         another {:.2} ms, on several streams {:.2}",
        step.nodes.len(),
        step.kernels(),
        step.sum(|node| node.flops) / 1e12 / images as f64,
        step.sum(|node| node.bytes) / 1e9 / images as f64,
        step.sum(|node| node.floor_ms),
        step.sum(|node| node.ms),
        step.ms,
    );
}

fn print_scaling(rows: &[Scaling], network: &Network) {
    say!("");
    say!("{} GB/s and {} us per hop between GPUs", network.gb_per_s, network.hop_us);
    say!("each range follows its expected value; a measurement outside it refutes the model");
    say!("gpus  step, ms               images/s per GPU    of one");
    for row in rows {
        let of_one = 100.0 * rows[0].step_ms[1] / row.step_ms[1];
        let rate = range(row.images_per_second_per_gpu, 0);
        say!("{:>4}  {:<22} {rate:<18} {of_one:>5.1} %", row.gpus, range(row.step_ms, 2));
    }
}

/// Images per second of one GPU, for each of three estimates of a step's duration.
fn rates(images: usize, step_ms: [f64; 3]) -> [f64; 3] {
    step_ms.map(|ms| 1e3 * images as f64 / ms)
}

/// The expected value followed by the range: `52.6 (45.2 to 64.7)`.
fn range([fast, expected, slow]: [f64; 3], digits: usize) -> String {
    let (low, high) = (fast.min(slow), fast.max(slow));
    format!("{expected:.digits$} ({low:.digits$} to {high:.digits$})")
}
