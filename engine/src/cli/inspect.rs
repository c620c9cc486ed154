//! `onegraph inspect`: the training step's program and memory plan, without running it.

use clap::{Args, ValueEnum};
use configs::Config;
use graph::plan::Owner;
use graph::report::{part_costs, to_text};
use graph::{Plan, Program, Schedule};

use crate::EngineError;
use crate::model::{ImageSize, Inject, ModelSpec, SlotShape, detection_program, training_program};
use kernels::device::DeviceKind;

#[derive(Debug, Args)]
pub(super) struct InspectArgs {
    /// What to show.
    #[arg(value_enum)]
    what: What,
    /// Config file, or the name of a preset.
    config: String,
    /// Change a value of the config.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Padded height of the images, pixels.
    #[arg(long, default_value_t = 800)]
    height: usize,
    /// Padded width of the images, pixels.
    #[arg(long, default_value_t = 1344)]
    width: usize,
    /// Foreground classes, where the config leaves them to the data.
    #[arg(long, default_value_t = 80)]
    classes: usize,
    /// Capacity of objects an image.
    #[arg(long, default_value_t = 100)]
    objects: usize,
    /// The detection pass instead of the training step.
    #[arg(long)]
    detection: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum What {
    /// Every node with its tensors and FLOPs.
    Program,
    /// The memory plan and the cost of each part.
    Plan,
}

pub(super) fn run(args: &InspectArgs) -> Result<(), EngineError> {
    let config = Config::load(&args.config, &args.set)?;
    let padded = ImageSize { height: args.height, width: args.width };
    let spec = ModelSpec {
        config: &config,
        num_classes: if config.model.num_classes > 0 {
            config.model.num_classes
        } else {
            args.classes
        },
        images: config.train.batch_size,
        padded,
        slot: SlotShape {
            pixels: 3 * args.height * args.width,
            objects: args.objects,
            parts: 4 * args.objects,
            coords: 128 * args.objects,
            runs: 1024,
        },
        inject: Inject::default(),
    };
    let build = if args.detection { detection_program } else { training_program };
    let program = build(&spec)?.program;
    match args.what {
        What::Program => super::print(&to_text(&program)),
        What::Plan => super::print(&plan_text(&program, &spec)?),
    }
}

fn plan_text(program: &Program, spec: &ModelSpec<'_>) -> Result<String, EngineError> {
    let schedule = Schedule::single_stream(program)?;
    let plan = Plan::new(program, &schedule, DeviceKind::Cpu);
    let gib = |bytes: usize| bytes as f64 / (1u64 << 30) as f64;
    let states: usize = program.states().map(|(_, t)| t.desc.cpu_bytes()).sum();
    let inputs: usize = program.inputs().map(|(_, t)| t.desc.cpu_bytes()).sum();
    let mut text = format!(
        "{} images of {}x{}, f32: {} nodes\narena  {:>8.3} GiB  ({:.3} GiB at the fullest launch; {:.3} GiB if nothing shared memory)\nstate  {:>8.3} GiB\ninputs {:>8.3} GiB\n\n",
        spec.images,
        spec.padded.height,
        spec.padded.width,
        program.nodes().len(),
        gib(plan.arena_bytes()),
        gib(plan.peak_live_bytes(&schedule)),
        gib(plan.unshared_bytes()),
        gib(states),
        gib(inputs),
    );
    let [part, pass, nodes, flops, bytes] = ["part", "pass", "nodes", "GFLOP", "GB moved"];
    text += &format!("{part:<16} {pass:<9} {nodes:>6} {flops:>12} {bytes:>12}\n");
    for part in part_costs(program) {
        text += &format!(
            "{:<16} {:<9} {:>6} {:>12.3} {:>12.3}\n",
            part.part,
            part.pass.to_string(),
            part.nodes,
            part.cost.flops as f64 / 1e9,
            part.cost.bytes as f64 / 1e9,
        );
    }
    let mut blocks: Vec<_> = plan.blocks().iter().collect();
    blocks.sort_by_key(|b| std::cmp::Reverse(b.bytes));
    text += "\nlargest blocks:\n";
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
    Ok(text)
}
