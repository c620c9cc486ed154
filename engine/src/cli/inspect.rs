//! `onegraph inspect`: shows the program and memory plan of a training step without running it, the
//! training images as the network gets them, a store, or a checkpoint.

mod checkpoint;
mod params;
mod store;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use crate::config::Config;
use clap::builder::RangedU64ValueParser;
use clap::{Args, ValueEnum};
use device::{Gpu, Ranks, Target, Task};
use graph::Program;
use graph::exec::device::{Place, Prepared};
use graph::plan::Owner;
use graph::report::{part_costs, to_text};

use crate::EngineError;
use crate::model::{
    Division, ImageSize, ModelSpec, Part, SlotShape, detection_program, training_program,
};
use crate::picture::{plan_picture, program_picture};
use crate::runtime::imagined_addresses;
use crate::train::checkpoint_bytes;

#[derive(Debug, Args)]
pub(super) struct InspectArgs {
    /// Subject to show: `program` (every node with its tensors and FLOPs), `plan` (the memory plan
    /// and the cost of each model part), `params` (each parameter, and how it is updated), `data`
    /// (a page of the training images as the network gets them), or a directory: a store, a
    /// checkpoint, or a run (its last checkpoint).
    #[arg(value_name = "program|plan|params|data|STORE|RUN")]
    what: What,
    /// Config file, or the name of a preset; not used with a directory.
    #[arg(default_value = "")]
    config: String,
    /// Read and decode every image of the store, and name the damaged ones.
    #[arg(long)]
    verify: bool,
    /// With --verify: compare the store with the image files in this directory, pixel by pixel.
    #[arg(long, value_name = "DIR", requires = "verify")]
    images: Option<PathBuf>,
    /// Override a value of the config.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Padded height of the images, pixels. Default: input.min_size, padded as in training.
    #[arg(long, value_parser = at_most(16_384))]
    height: Option<usize>,
    /// Padded width of the images, pixels. Default: input.max_size, padded as in training.
    #[arg(long, value_parser = at_most(16_384))]
    width: Option<usize>,
    /// Number of foreground classes, if the config takes it from the data.
    #[arg(long, default_value_t = 80, value_parser = at_most(65_535))]
    classes: usize,
    /// Maximum number of objects per image.
    #[arg(long, default_value_t = 100, value_parser = at_most(65_535))]
    objects: usize,
    /// Show the detection pass instead of the training step.
    #[arg(long)]
    detection: bool,
    /// Target that the program is planned for: the CPU in f32, or CUDA in fp16, with streams and
    /// launches. No GPU is needed.
    #[arg(long, value_enum, default_value = "cpu")]
    device: Kind,
    /// GPU model that the CUDA program is planned for: a100, h100 or h200.
    #[arg(long, value_name = "GPU", default_value = "h100")]
    gpu: String,
    /// Show the program of one rank in a run with this many ranks.
    #[arg(long, default_value_t = 1, value_parser = at_most(4096))]
    ranks: usize,
    /// Instead of text, draw a picture into this file: for `plan` the arena and the streams, for
    /// `program` the nodes grouped by model part.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// HTML file to write for `data`.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl InspectArgs {
    fn target(&self, config: &Config) -> Result<Target, EngineError> {
        let in_precision = |gpu: Gpu| Target::Gpu(gpu.in_precision(config.train.precision));
        match self.device {
            Kind::Cpu => Ok(Target::Cpu),
            Kind::Cuda => Gpu::named(&self.gpu).map(in_precision).ok_or_else(|| {
                let known = Gpu::NAMES.join(", ");
                EngineError::Usage(format!(
                    "--gpu {} is not known; choose one of {known}",
                    self.gpu
                ))
            }),
        }
    }
}

/// Parses a count from 1 to `max`.
fn at_most(max: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=max)
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    Cpu,
    Cuda,
}

#[derive(Debug, Clone)]
enum What {
    Of(View),
    Data,
    Store(PathBuf),
    /// The directory of a checkpoint or run.
    Checkpoint(PathBuf),
}

/// Subjects that are derived from a config.
#[derive(Debug, Clone, Copy)]
enum View {
    Program,
    Plan,
    Params,
}

impl FromStr for What {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "program" => Ok(What::Of(View::Program)),
            "plan" => Ok(What::Of(View::Plan)),
            "params" => Ok(What::Of(View::Params)),
            "data" => Ok(What::Data),
            path if Path::new(path).is_dir() => What::of_folder(path.into()),
            _ => {
                Err("neither `program`, `plan`, `params`, `data` nor the directory of a store, a \
                      run or a checkpoint"
                    .to_string())
            }
        }
    }
}

impl What {
    /// Classifies a directory as a checkpoint or run, or else as a store, if at least one file of a
    /// store exists.
    fn of_folder(path: PathBuf) -> Result<Self, String> {
        if checkpoint::is_of(&path) {
            return Ok(What::Checkpoint(path));
        }
        let is_there = |name: &str| path.join(name).is_file();
        match ["header.json", "images.bin", "pixels.bin"].into_iter().any(is_there) {
            true => Ok(What::Store(path)),
            false => Err("the folder contains no store, run or checkpoint".into()),
        }
    }
}

pub(super) fn run(args: &InspectArgs) -> Result<(), EngineError> {
    let usage = |text: &str| Err(EngineError::Usage(text.to_string()));
    if args.verify && !matches!(args.what, What::Store(_)) {
        return usage("--verify only applies to a store: onegraph inspect STORE --verify");
    }
    let view = match &args.what {
        What::Store(path) => return store::run(path, args.verify, args.images.as_deref()),
        What::Checkpoint(path) => return checkpoint::run(path),
        What::Of(view) => Some(*view),
        What::Data => None,
    };
    if args.config.is_empty() {
        return usage(
            "inspect program, plan, params and data need a config file or the name of a preset",
        );
    }
    if matches!(view, Some(View::Params)) && args.svg.is_some() {
        return usage("inspect params draws nothing; leave out --svg");
    }
    if view.is_none() && (args.svg.is_some() || args.detection) {
        return usage("inspect data writes a page; leave out --svg and --detection");
    }
    if view.is_some() && args.out.is_some() {
        return usage("--out only applies to inspect data; use --svg for a program or plan");
    }
    let config = Config::load(&args.config, &args.set)?;
    let Some(view) = view else {
        let page = crate::data_page::html(&config)?;
        let out = args.out.as_deref().unwrap_or(Path::new("data.html"));
        crate::run_dir::write_whole(out, page.as_bytes())?;
        return super::print(&format!("written: {}\n", out.display()));
    };
    let side = |size: usize| size.next_multiple_of(config.input.size_divisor);
    let height = args.height.unwrap_or(side(config.input.min_size));
    let width = args.width.unwrap_or(side(config.input.max_size));
    let target = args.target(&config)?;
    let ranks = Ranks { rank: 0, count: args.ranks };
    let division = Division::new(&config.train, &target, ranks)?;
    let spec = ModelSpec {
        config: &config,
        num_classes: config.model.classes_or(args.classes),
        images: match args.detection {
            true => config.eval.batch_size,
            false => division.images,
        },
        padded: ImageSize { height, width },
        slot: SlotShape::imagined(height, width, args.objects),
        target,
        part: Part::updating(&division),
        observe: false,
    };
    let build = if args.detection { detection_program } else { training_program };
    let built = build(&spec)?;
    let program = built.program;
    if let Some(path) = &args.svg {
        return draw((args, view), program, &spec, path);
    }
    super::print(&match view {
        View::Program => to_text(&program),
        View::Plan => plan_text(program, &spec)?,
        View::Params => params::text(&built.params, &config.solver),
    })
}

fn draw(
    (args, view): (&InspectArgs, View),
    program: Program,
    spec: &ModelSpec<'_>,
    path: &Path,
) -> Result<(), EngineError> {
    let file = Path::new(&args.config).file_stem().map(|stem| stem.to_string_lossy());
    let name = spec.config.train.name.as_deref().or(file.as_deref()).unwrap_or("program");
    let pass = if args.detection { "detection" } else { "a training step" };
    let on = match spec.target {
        Target::Cpu => "f32 on the CPU".to_string(),
        Target::Gpu(_) => {
            format!("{} for {}", spec.config.train.precision.name(), args.gpu.to_uppercase())
        }
    };

    let ImageSize { height, width } = spec.padded;
    let what = format!("{pass} of {name}, {} images of {height}x{width}, {on}", spec.images);
    let picture = match view {
        View::Program | View::Params => {
            program_picture(&format!("Program: {what}"), &program, &spec.target)
        }
        View::Plan => {
            let prepared = Prepared::new(Arc::new(program), spec.target.clone())?;
            plan_picture(&format!("Memory plan: {what}"), &prepared)
        }
    };
    crate::run_dir::write_whole(path, picture.as_bytes())
}

fn plan_text(program: Program, spec: &ModelSpec<'_>) -> Result<String, EngineError> {
    let target = &spec.target;
    let prepared = Prepared::new(Arc::new(program), target.clone())?;
    let Prepared { program, schedule, plan, .. } = &prepared;
    let gib = |bytes: usize| bytes as f64 / (1u64 << 30) as f64;
    let states: usize = program.states().map(|(_, t)| target.bytes(&t.desc)).sum();
    let inputs: usize = program.inputs().map(|(_, t)| target.bytes(&t.desc)).sum();
    let checkpoint = checkpoint_bytes(&prepared);
    let mut text = format!(
        "{} images of {}x{}, {}: {} nodes\n",
        spec.images,
        spec.padded.height,
        spec.padded.width,
        if target.is_cpu() { "f32" } else { spec.config.train.precision.name() },
        program.nodes().len(),
    );
    text += &format!(
        "arena  {:>8.3} GiB  ({:.3} GiB live at the peak; {:.3} GiB without sharing)\n\
         state  {:>8.3} GiB{}\ninputs {:>8.3} GiB{}\nall    {:>8.3} GiB\n\n",
        gib(plan.arena_bytes()),
        gib(plan.peak_live_bytes(schedule)),
        gib(plan.unshared_bytes()),
        gib(states),
        match checkpoint {
            0 => String::new(),
            _ => format!("  (and {:.3} GiB while a checkpoint is written)", gib(checkpoint)),
        },
        gib(inputs),
        if target.is_cpu() { "" } else { "  (three times: two buffers and the step's own)" },
        gib(plan.arena_bytes() + states + checkpoint + prepared.input_places() * inputs),
    );
    if !target.is_cpu() {
        text += &launch_text(&prepared)?;
    }
    text += &cost_text(program, target);
    text += &block_text(&prepared);
    Ok(text)
}

/// The launches on each stream, and the number of launches of each kernel.
fn launch_text(prepared: &Prepared) -> Result<String, EngineError> {
    let state = imagined_addresses(prepared);
    let place = Place { arena: 1 << 44, inputs: 1 << 43, state: &state };
    let list = prepared.launches(&place)?;
    let [stream, works, kernels, waits] = ["stream", "nodes", "kernels", "waits"];
    let mut text = format!("{stream:<7} {works:>6} {kernels:>8} {waits:>6}\n");
    for stream in 0..list.streams() {
        let works: Vec<_> = list.works().iter().filter(|w| w.stream == stream).collect();
        let kernels: usize = works.iter().map(|w| w.kernels().count()).sum();
        let waits: usize = works.iter().map(|w| w.waits.len()).sum();
        text += &format!("{stream:<7} {:>6} {kernels:>8} {waits:>6}\n", works.len());
    }
    let mut by_kernel: BTreeMap<&str, usize> = BTreeMap::new();
    for launch in list.kernels() {
        *by_kernel.entry(launch.kernel).or_default() += 1;
    }
    text += &format!("\n{} different kernels:\n", by_kernel.len());
    for (kernel, count) in by_kernel {
        text += &format!("{count:>6}  {kernel}\n");
    }
    let sum = |task: &Task| match task {
        Task::AllReduce(sum) => Some(sum.bytes()),
        _ => None,
    };
    let sums: Vec<usize> = list.tasks().filter_map(sum).collect();
    if !sums.is_empty() {
        let mib = sums.iter().sum::<usize>() as f64 / (1 << 20) as f64;
        text += &format!("{:>6}  all-reduces, {mib:.1} MiB\n", sums.len());
    }
    text.push('\n');
    Ok(text)
}

fn cost_text(program: &Program, target: &Target) -> String {
    let [part, pass, nodes, flops, bytes] = ["part", "pass", "nodes", "GFLOP", "GB moved"];
    let mut text = format!("{part:<16} {pass:<9} {nodes:>6} {flops:>12} {bytes:>12}\n");
    for part in part_costs(program, target) {
        text += &format!(
            "{:<16} {:<9} {:>6} {:>12.3} {:>12.3}\n",
            part.part,
            part.pass.to_string(),
            part.nodes,
            part.cost.flops as f64 / 1e9,
            part.cost.bytes as f64 / 1e9,
        );
    }
    text
}

fn block_text(prepared: &Prepared) -> String {
    let Prepared { program, schedule, plan, .. } = prepared;
    let mut blocks: Vec<_> = plan.blocks().iter().collect();
    blocks.sort_by_key(|b| std::cmp::Reverse(b.bytes));
    let mut text = "\nlargest blocks:\n".to_string();
    for block in blocks.iter().take(12) {
        let owner = match block.owner {
            Owner::Tensor(t) => {
                format!("{} {:?}", program.tensors()[t.index()].name, program.desc(t))
            }
            Owner::Workspace(launch) => {
                let node = schedule.launches()[launch].node;
                format!("scratch of {}", program.node_name(node))
            }
        };
        let mib = block.bytes as f64 / (1 << 20) as f64;
        text += &format!("{mib:>10.1} MiB at {:>12}  {owner}\n", block.offset);
    }
    text
}
