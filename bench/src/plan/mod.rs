//! `bench plan`: what a step of many GPUs should take. The training step is the real Program with
//! its schedule and its launches; the durations are a model ([`kernels::time`]), each a range.

mod buckets;
#[cfg(test)]
mod goals;
mod minutes;
mod model;
mod nodes;
mod print;
mod step;
mod table;
mod timeline;
mod wires;

use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use configs::{Config, Precision};
use dali::order::PaddedShape;
use device::Gpu;
use kernels::time::Case;

use crate::report::write_json;
use minutes::Minutes;
use model::Model;
use nodes::NodesPlan;
use step::{Setting, StepPlan};
use wires::{Fabric, MACHINES, Machine, NODE_GPUS, Wire};

/// Ranks beyond which no formula here was thought through.
const MAX_RANKS: usize = 4096;

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Number of ranks, one GPU each: up to 8, or whole nodes of 8.
    #[arg(long, value_name = "N", default_value_t = 8)]
    gpus: usize,
    /// The GPU: a100, h100 or h200.
    #[arg(long = "device", visible_alias = "gpu", value_name = "GPU", default_value = "h100")]
    gpu: String,
    /// The network between nodes: AWS's adapter, or InfiniBand.
    #[arg(long, value_enum, default_value = "efa")]
    network: Network,
    /// GB/s of a node on that network, where they were measured (the bus bandwidth of nccl-tests).
    #[arg(long, value_name = "GB/S")]
    network_gb_s: Option<f64>,
    /// Latency of a step from node to node, where it was measured.
    #[arg(long, value_name = "US")]
    hop_us: Option<f64>,
    /// Config file, or the name of a preset.
    #[arg(long, default_value = "mlperf_r50")]
    preset: String,
    /// Change a value of the config.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Images of each GPU. Default: train.images_per_group.
    #[arg(long)]
    images: Option<usize>,
    /// The images' padded shape. Default: input.min_size by input.max_size, padded.
    #[arg(long, value_name = "HEIGHTxWIDTH")]
    padded: Option<PaddedShape>,
    /// Bytes after which a bucket of gradients is full.
    #[arg(long, value_name = "MIB", default_value_t = 50.0)]
    bucket_mib: f64,
    /// Positive RoIs per image, on average: the mask head works only on them.
    #[arg(long, default_value_t = 64.0)]
    positives: f64,
    /// List every node, not only those that take longest.
    #[arg(long)]
    nodes: bool,
    /// Seconds that an evaluation keeps the GPUs from training, where they were measured.
    #[arg(long, value_name = "S")]
    evaluation_seconds: Option<f64>,
    /// Draw the expected time line of one rank into this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write the figures here.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Rewrite the table of this document, between its two markers, instead of planning.
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Network {
    Efa,
    Ib,
}

impl PlanArgs {
    /// The GPU, and the machine that it is in.
    fn machine(&self) -> anyhow::Result<(Gpu, Machine)> {
        let machine = MACHINES.iter().find(|machine| machine.gpu == self.gpu);
        match (Gpu::named(&self.gpu), machine) {
            (Some(gpu), Some(machine)) => Ok((gpu, *machine)),
            _ => {
                bail!("--device {} is not known; choose one of {}", self.gpu, Gpu::NAMES.join(", "))
            }
        }
    }

    /// The network between the nodes of a machine.
    fn network(&self, machine: &Machine) -> Wire {
        let wire = match self.network {
            Network::Efa => machine.efa,
            Network::Ib => machine.infiniband,
        };
        Wire {
            gb_per_s: self.network_gb_s.unwrap_or(wire.gb_per_s),
            hop_us: self.hop_us.unwrap_or(wire.hop_us),
            ..wire
        }
    }

    fn check(&self) -> anyhow::Result<()> {
        let ranks = self.gpus;
        ensure!(
            (1..=NODE_GPUS).contains(&ranks)
                || (ranks.is_multiple_of(NODE_GPUS) && (1..=MAX_RANKS).contains(&ranks)),
            "--gpus {ranks}: a plan is for 1 to {NODE_GPUS} GPUs, or for whole nodes of \
             {NODE_GPUS}, at most {MAX_RANKS} GPUs"
        );
        let mib = self.bucket_mib;
        ensure!(
            (0.001..=1e6).contains(&mib),
            "--bucket-mib {mib}: a bucket takes between 0.001 and 1000000 MiB"
        );
        ensure!(
            self.images.is_none_or(|images| (1..=256).contains(&images)),
            "--images {}: a GPU takes 1 to 256 images",
            self.images.unwrap_or(0)
        );
        for (name, value) in [
            ("--network-gb-s", self.network_gb_s),
            ("--hop-us", self.hop_us),
            ("--positives", Some(self.positives)),
        ] {
            let wrong = value.filter(|value| !(value.is_finite() && *value > 0.0));
            ensure!(wrong.is_none(), "{name} {}: must be above 0", wrong.unwrap_or(0.0));
        }
        let wrong = self.evaluation_seconds.filter(|s| !(s.is_finite() && *s >= 0.0));
        let seconds = wrong.unwrap_or(0.0);
        ensure!(wrong.is_none(), "--evaluation-seconds {seconds}: must be 0 or more");
        Ok(())
    }
}

/// The plans, from the fast case to the slow one.
struct Planned {
    nodes: [NodesPlan; 3],
    steps: [StepPlan; 3],
    minutes: Option<Minutes>,
}

pub(crate) fn run(args: &PlanArgs) -> anyhow::Result<()> {
    args.check()?;
    if let Some(path) = &args.table {
        return table::rewrite(path);
    }
    let (gpu, machine) = args.machine()?;
    let network = args.network(&machine);
    let config = Config::load(&args.preset, &args.set)?;
    ensure!(
        config.train.micro_steps == 1,
        "a step of several graphs is not planned: add --set train.micro_steps=1"
    );
    ensure!(
        config.train.precision == Precision::Fp16,
        "a step in {} is not planned: its products are not made for speed; add --set \
         train.precision=fp16",
        config.train.precision.name()
    );
    let images = args.images.unwrap_or(config.train.images_per_group);
    let shape = padded(args, &config)?;
    let of_config = || format!("{}, {images} images of {shape}", args.preset);
    let model = Model::new(&config, images, shape, &gpu).with_context(of_config)?;
    let fabric = Fabric { ranks: args.gpus, nvlink: machine.nvlink, network };
    let setting = |case| Setting {
        model: &model,
        case,
        fabric,
        bucket_mib: args.bucket_mib,
        positives: args.positives,
    };
    let steps = Case::ALL.map(|case| step::plan(&setting(case)));
    let planned = Planned {
        nodes: Case::ALL.map(|case| nodes::plan(&setting(case))),
        minutes: minutes::project(args, &gpu, images, steps.each_ref().map(|step| step.step_ms)),
        steps,
    };
    let about = print::About { args, network, nvlink: machine.nvlink, shape, model: &model };
    print::text(&about, &planned);
    if let Some(path) = &args.svg {
        let expected = &planned.nodes[Case::Expected as usize];
        let (title, about) = print::timeline_title(&about, expected);
        let drawing = crate::svg::draw(&title, &about, &expected.bars());
        engine::run_dir::write_whole(path, drawing.as_bytes())
            .with_context(|| path.display().to_string())?;
    }
    let value = print::json(&about, &planned);
    args.json.as_ref().map_or(Ok(()), |path| write_json(path, &value))
}

/// The images' padded shape.
fn padded(args: &PlanArgs, config: &Config) -> anyhow::Result<PaddedShape> {
    let divisor = config.input.size_divisor;
    let side = |size: usize| size.next_multiple_of(divisor);
    let own =
        PaddedShape { height: side(config.input.min_size), width: side(config.input.max_size) };
    let shape = args.padded.unwrap_or(own);
    ensure!(
        shape.height.is_multiple_of(divisor) && shape.width.is_multiple_of(divisor),
        "--padded {shape}: both sides must be multiples of input.size_divisor, which is {divisor}"
    );
    Ok(shape)
}
