//! The plan as text and as JSON.

use dali::order::PaddedShape;
use kernels::time::{Case, Rates};
use serde_json::{Value, json};

use super::model::Model;
use super::nodes::{NodePlan, NodesPlan, StreamPlan};
use super::wires::{CHANNELS, NODE_GPUS, START_US, Wire};
use super::{PlanArgs, Planned};
use crate::report::commit;

/// Nodes listed without `--nodes`.
const LONGEST: usize = 16;
/// The work of each stream, by number.
const STREAMS: [&str; 4] = ["longest path", "weight gradients", "what can wait", "sums over ranks"];
/// Rates that are printed: the kernel of each tile.
const TILES: [(&str, &str); 3] = [
    ("large tile", "conv2d_f16_large"),
    ("small tile", "conv2d_f16_small"),
    ("loaded value by value", "conv2d_f16_unaligned"),
];

/// The subject of a plan.
pub(super) struct About<'a> {
    pub(super) args: &'a PlanArgs,
    pub(super) nvlink: Wire,
    pub(super) network: Wire,
    pub(super) shape: PaddedShape,
    pub(super) model: &'a Model,
}

/// Bytes that a rank takes, by kind.
struct Memory {
    arena: usize,
    state: usize,
    inputs: usize,
    buckets: usize,
}

impl About<'_> {
    fn memory(&self) -> Memory {
        let prepared = &self.model.prepared;
        let states = prepared.program.states();
        Memory {
            arena: prepared.plan.arena_bytes(),
            state: states.map(|(_, tensor)| prepared.target.bytes(&tensor.desc)).sum(),
            // Two buffers and the step's own.
            inputs: 3 * prepared.input_bytes(),
            buckets: if self.args.gpus > 1 { self.gradient_bytes() } else { 0 },
        }
    }

    /// On the wire.
    fn gradient_bytes(&self) -> usize {
        let program = &self.model.prepared.program;
        let values = self.model.grads.iter().map(|grad| program.desc(*grad).len());
        super::buckets::VALUE_BYTES * values.sum::<usize>()
    }

    fn nodes(&self) -> usize {
        self.args.gpus.div_ceil(NODE_GPUS)
    }

    /// Preset, GPU and images.
    fn title(&self) -> String {
        format!(
            "{} on {} | {} of {}",
            self.args.preset,
            self.args.gpu.to_uppercase(),
            count(self.model.images, "image"),
            self.shape
        )
    }
}

/// `1 rank`, `8 ranks`.
fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// A range, its guess first: `52.6 (45.2 to 64.7)`.
pub(super) fn range([fast, expected, slow]: [f64; 3], digits: usize) -> String {
    let (low, high) = (fast.min(slow), fast.max(slow));
    format!("{expected:.digits$} ({low:.digits$} to {high:.digits$})")
}

pub(super) fn text(about: &About<'_>, planned: &Planned) {
    let args = about.args;
    say!("An estimate: docs/measurements-gpu.md has what was measured.");
    say!("Other GPUs, and several, are not verified on hardware.");
    say!("Of each range the guess comes first; a measurement outside of it refutes the model.");
    let (ranks, nodes) = (count(args.gpus, "rank"), count(about.nodes(), "node"));
    say!("{} | {ranks} on {nodes}", about.title());
    rates(about);
    let [_, expected, _] = &planned.nodes;
    self::nodes(expected, args.nodes, about.model.images);
    step(about, planned);
    if let Some(run) = &planned.minutes {
        let record = run.record.map_or(String::new(), |best| format!("; the record is {best:.2}"));
        say!(
            "to box 0.377 and mask 0.339: {} minutes, {} epochs at a global batch of {}{record}",
            range(run.total, 1),
            run.epochs,
            run.global_batch,
        );
    }
    let memory = about.memory();
    let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
    say!(
        "memory of a rank: arena {:.0} MiB, state {:.0}, inputs {:.0}, buckets {:.0}; CUDA's context \
         and NCCL take more",
        mib(memory.arena),
        mib(memory.state),
        mib(memory.inputs),
        mib(memory.buckets),
    );
}

/// Title and second line of the drawn time line.
pub(super) fn timeline_title(about: &About<'_>, nodes: &NodesPlan) -> (String, String) {
    let whole = nodes.whole();
    let second = format!(
        "expected, not verified on hardware: {:.1} ms; {} kernels, {:.1} ms one after the other; \
         commit {}",
        nodes.step_ms,
        whole.kernels,
        whole.ms,
        commit(),
    );
    (about.title(), second)
}

/// The model's rates in each case, by name and unit.
fn rate_table(about: &About<'_>) -> Vec<(&'static str, &'static str, [f64; 3])> {
    let gpu = &about.model.gpu;
    let of = |rate: &dyn Fn(&Rates) -> f64| Case::ALL.map(|case| rate(&Rates::of(gpu, case)));
    let tile = |(name, kernel): (&'static str, &'static str)| {
        (name, "TFLOP/s", of(&|rates| rates.tflops(kernel).unwrap_or(0.0)))
    };
    let mut table: Vec<_> = TILES.into_iter().map(tile).collect();
    table.push(("without tensor cores", "TFLOP/s", of(&Rates::scalar_tflops)));
    table.push(("memory", "GB/s", of(&Rates::gb_per_s)));
    table.push(("between two kernels", "us", of(&Rates::gap_us)));
    table
}

fn rates(about: &About<'_>) {
    for (name, unit, values) in rate_table(about) {
        say!("{name:<22} {} {unit}", range(values, 1));
    }
    for wire in [about.nvlink, about.network] {
        let Wire { name, gb_per_s, sheet_gb_per_s, hop_us, source } = wire;
        say!("{name:<22} {gb_per_s} of {sheet_gb_per_s} GB/s, {hop_us} us a hop ({source})");
    }
    say!("a collective takes {START_US} us to start and {CHANNELS} multiprocessors");
}

/// One line a stream, the critical path, and the nodes that take longest, or all in order.
fn nodes(plan: &NodesPlan, all: bool, images: usize) {
    let whole = plan.whole();
    say!("");
    say!(
        "one rank: {} nodes, {} kernels, {:.3} TFLOP and {:.2} GB an image",
        whole.nodes,
        whole.kernels,
        whole.flops / 1e12 / images as f64,
        whole.bytes / 1e9 / images as f64,
    );
    say!("stream                nodes kernels    TFLOP       GB  floor ms expected ms");
    for (stream, sum) in &plan.streams {
        self::stream(&format!("{stream} {}", STREAMS.get(*stream).unwrap_or(&"")), sum);
    }
    stream("all, one by one", &whole);
    say!(
        "critical path: {:.2} ms, {} nodes of {} kernels",
        plan.step_ms,
        plan.critical_nodes,
        plan.critical_kernels
    );
    let mut listed: Vec<&NodePlan> = plan.nodes.iter().collect();
    if !all {
        listed.sort_by(|a, b| b.ms.total_cmp(&a.ms));
        listed.truncate(LONGEST);
        say!("the {LONGEST} nodes that take longest (--nodes lists all; *: on the critical path)");
    }
    say!("   start expected    floor   GFLOP       MB   waves  s kernels  node");
    for node in listed {
        say!(
            "{:>8.3} {:>8.3} {:>8.3} {:>7.1} {:>8.1} {:>7.2}  {} {:>7}  {}{}",
            node.start_ms,
            node.ms,
            node.floor_ms,
            node.flops / 1e9,
            node.bytes / 1e6,
            node.waves,
            node.stream,
            node.kernels.len(),
            if node.critical { "*" } else { " " },
            node.name,
        );
    }
    say!("");
}

fn stream(name: &str, sum: &StreamPlan) {
    say!(
        "{name:<20} {:>6} {:>7} {:>8.3} {:>8.2} {:>9.2} {:>11.2}",
        sum.nodes,
        sum.kernels,
        sum.flops / 1e12,
        sum.bytes / 1e9,
        sum.floor_ms,
        sum.ms,
    );
}

fn step(about: &About<'_>, planned: &Planned) {
    let [_, expected, _] = &planned.steps;
    if !expected.buckets.is_empty() {
        let megabytes = about.gradient_bytes() as f64 / 1e6;
        let mib = expected.bucket_mib;
        say!("{megabytes:.1} MB of gradients in fp16, in buckets of {mib} MiB; expected ms:");
        say!("     MB grads   ready   start     end     ring    tree");
    }
    for bucket in &expected.buckets {
        say!(
            "{:>7.2} {:>5} {:>7.2} {:>7.2} {:>7.2}  {:>7.3} {:>7.3}",
            bucket.bytes as f64 / 1e6,
            bucket.gradients,
            bucket.ready_ms,
            bucket.start_ms,
            bucket.end_ms,
            bucket.times.ring,
            bucket.times.tree,
        );
    }
    let of = |value: fn(&super::StepPlan) -> f64| planned.steps.each_ref().map(value);
    say!(
        "step {} ms, {} images/s/GPU; {:.2} ms of communication expected, {:.2} of it hidden \
         ({:.0} %), {:.2} exposed",
        range(of(|step| step.step_ms), 2),
        range(of(|step| step.images_per_second_per_gpu), 0),
        expected.communication_ms,
        expected.hidden_ms,
        expected.hidden_percent(),
        expected.exposed_ms,
    );
}

pub(super) fn json(about: &About<'_>, planned: &Planned) -> Value {
    let (args, memory) = (about.args, about.memory());
    let rates = rate_table(about).into_iter().map(
        |(what, unit, cases)| json!({"what": what, "unit": unit, "fast_expected_slow": cases}),
    );
    json!({
        "kind": "plan",
        "verified_on_hardware": false,
        "commit": commit(),
        "preset": args.preset,
        "gpu": args.gpu,
        "ranks": args.gpus,
        "nodes": about.nodes(),
        "images_per_gpu": about.model.images,
        "padded": about.shape.to_string(),
        "network": about.network,
        "nvlink": about.nvlink,
        "gradient_bytes": about.gradient_bytes(),
        "rates": rates.collect::<Vec<_>>(),
        "one_rank": planned.nodes[Case::Expected as usize],
        "minutes": planned.minutes,
        "fast_expected_slow": planned.steps,
        "memory": {
            "arena_bytes": memory.arena, "state_bytes": memory.state,
            "input_bytes": memory.inputs, "bucket_bytes": memory.buckets,
        },
    })
}
