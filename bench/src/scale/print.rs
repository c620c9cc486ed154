//! The plan as text and as JSON.

use serde_json::{Value, json};

use dali::order::PaddedShape;

use super::calibration::Calibration;
use super::listing;
use super::model::Model;
use super::nodes::NodesPlan;
use super::plan::StepPlan;
use super::stage::Stage;
use super::wires::{CHANNELS, Fabric, Machine, NODE_GPUS, START_US, Times, Wire};
use super::{PlanArgs, Planned};
use crate::report::commit;

/// Images/s/GPU that MLPerf v3.0's H100 submissions kept: 94 of 187.
const RECORD_PERCENT: f64 = 50.3;
const KEPT_GOAL: f64 = 60.0;
const WEAK_GOAL: f64 = 90.0;
/// Memory of a rank that no plan of ours holds, in MiB: a CUDA context, and NCCL's buffers of 4 MiB
/// (its default) for 16 channels, two neighbours, both ways. Guesses.
const CONTEXT_MIB: f64 = 500.0;
const NCCL_MIB: f64 = 256.0;

/// What a plan is of.
pub(super) struct About<'a> {
    pub(super) args: &'a PlanArgs,
    pub(super) machine: &'a Machine,
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
        let ranks = self.args.gpus;
        Memory {
            arena: prepared.plan.arena_bytes(),
            state: states.map(|(_, tensor)| prepared.target.bytes(&tensor.desc)).sum(),
            // Two buffers and the step's own.
            inputs: 3 * prepared.input_bytes(),
            buckets: if ranks > 1 { self.gradient_bytes() } else { 0 },
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

    /// An all-reduce of so many bytes on each wire: in a node, and over the nodes by each network.
    fn by_wire(&self, bytes: f64) -> [Times; 3] {
        let nvlink = self.machine.nvlink;
        let local = self.args.gpus.min(NODE_GPUS);
        let of = |ranks, network| Fabric { ranks, nvlink, network }.all_reduce(bytes);
        [
            of(local, self.network),
            of(self.args.gpus, self.machine.efa),
            of(self.args.gpus, self.machine.infiniband),
        ]
    }
}

/// `1 rank`, `8 ranks`.
fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn mib(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Review => "today's code, its products at the review's first rates",
        Stage::Now => "today's code",
        Stage::Step9 => "the code after change 9 of the review",
        Stage::Step10 => "the code after change 10 of the review",
    }
}

pub(super) fn text(about: &About<'_>, calibration: &Calibration, planned: &Planned) {
    let (args, model) = (about.args, about.model);
    say!("A model, not verified on hardware: nothing here was measured on a GPU.");
    say!(
        "{} | {} on {} | {} | {} of {} each | {}",
        args.preset,
        count(args.gpus, "rank"),
        count(about.nodes(), "node"),
        args.gpu.to_uppercase(),
        count(model.images, "image"),
        about.shape,
        stage(args.rates),
    );
    wires(about);
    say!(
        "model: calibrated to the review's {} table; {:.1} ms for its step of 12 images, streams \
         added, where the review says {:.1} (ratio {:.3})",
        calibration.table,
        calibration.serial_ms,
        calibration.review_ms,
        calibration.serial_ms / calibration.review_ms,
    );
    say!("gradients to reduce: {:.1} MB in fp16", about.gradient_bytes() as f64 / 1e6);
    if args.nodes {
        listing::rates(&model.rates.table(args.rates));
    }
    listing::nodes(&planned.nodes, args.nodes, model.images);
    for step in &planned.steps {
        self::step(about, step, planned.steps.len() == 1);
    }
    listing::evaluation(&planned.evaluation, args.gpus);
    if let Some(minutes) = &planned.minutes {
        listing::minutes(minutes);
    }
    memory(about);
    tables(about, planned);
}

/// Title and second line of the drawn time line.
pub(super) fn timeline_title(about: &About<'_>, nodes: &NodesPlan) -> (String, String) {
    let (args, model) = (about.args, about.model);
    let title = format!(
        "{} on {} | {} of {} | {}",
        args.preset,
        args.gpu.to_uppercase(),
        count(model.images, "image"),
        about.shape,
        stage(args.rates),
    );
    let whole = nodes.whole();
    let second = format!(
        "predicted, not verified on hardware: {:.2} ms ({:.1} images/s); {} kernels, {:.1} ms one \
         after the other; commit {}",
        nodes.step_ms,
        1e3 * model.images as f64 / nodes.step_ms,
        whole.kernels,
        whole.ms,
        commit(),
    );
    (title, second)
}

fn wires(about: &About<'_>) {
    let Machine { nvlink, efa, infiniband, .. } = about.machine;
    for wire in [nvlink, efa, infiniband] {
        say!(
            "{:<15} {:>4.0} of {:>3.0} GB/s, {:>4.1} us a hop  ({})",
            wire.name,
            wire.gb_per_s,
            wire.sheet_gb_per_s,
            wire.hop_us,
            wire.source,
        );
    }
    say!("a collective takes {START_US} us to start and {CHANNELS} multiprocessors");
}

fn step(about: &About<'_>, step: &StepPlan, whole: bool) {
    say!("");
    if about.args.gpus > 1 {
        say!("buckets of {} MiB: {}", step.bucket_mib, step.buckets.len());
    }
    if whole && !step.buckets.is_empty() {
        buckets(about, step);
    }
    say!(
        "step {:.2} ms ({:.1} images/s/GPU): {:.2} ms of one rank with {:.0} positives an image, \
         {:.2} ms of communication, {:.2} of it hidden ({:.0} %), {:.2} exposed",
        step.step_ms,
        step.images_per_second_per_gpu,
        step.compute_ms,
        step.positives,
        step.communication_ms,
        step.hidden_ms,
        step.hidden_percent(),
        step.exposed_ms,
    );
}

/// Each bucket with its times by wire, in ms.
fn buckets(about: &About<'_>, step: &StepPlan) {
    let far = about.nodes() > 1;
    let head = if far {
        "   EFA ring   tree  h-ring  h-tree    IB ring   tree  h-ring  h-tree"
    } else {
        ""
    };
    say!("     MB grads   ready   start     end  NVLink ring   tree{head}");
    for bucket in &step.buckets {
        let [near, efa, ib] = about.by_wire(bucket.bytes as f64);
        let mut line = format!(
            "{:>7.2} {:>5} {:>7.2} {:>7.2} {:>7.2}      {:>7.3} {:>6.3}",
            bucket.bytes as f64 / 1e6,
            bucket.gradients,
            bucket.ready_ms,
            bucket.start_ms,
            bucket.end_ms,
            near.ring,
            near.tree,
        );
        for t in [efa, ib].iter().filter(|_| far) {
            let (ring, tree) = (t.hierarchical_ring, t.hierarchical_tree);
            line += &format!("   {:>8.3} {:>6.3} {ring:>7.3} {tree:>7.3}", t.ring, t.tree);
        }
        say!("{line}");
    }
    if far {
        say!(
            "(ms; h-: reduce-scatter and all-gather within the node; the step takes ring or tree)"
        );
    }
}

fn memory(about: &About<'_>) {
    let memory = about.memory();
    let planned = memory.arena + memory.state + memory.inputs + memory.buckets;
    say!("");
    say!(
        "memory of a rank: arena {:.0} MiB, state {:.0}, inputs {:.0}, buckets {:.0}: {:.0} planned; \
         about {:.0} more for the context and {:.0} for NCCL",
        mib(memory.arena),
        mib(memory.state),
        mib(memory.inputs),
        mib(memory.buckets),
        mib(planned),
        CONTEXT_MIB,
        if about.args.gpus > 1 { NCCL_MIB } else { 0.0 },
    );
}

fn tables(about: &About<'_>, planned: &Planned) {
    let (kept, network) = (&planned.kept, about.network.name);
    say!("");
    say!(
        "kept at 256 x 1 image of 8 x 12, over {network}: {:.1} of {:.1} images/s/GPU = {:.0} % \
         (goal {KEPT_GOAL} %, MLPerf's record {RECORD_PERCENT} %)",
        kept.single,
        kept.full,
        kept.percent,
    );
    say!(
        "  {:.0} % if all-reduces were free; {:.0} % if every image had as many positives",
        kept.percent_without_communication,
        kept.percent_of_equal_images,
    );
    say!("what one image costs, ms of the parts one after the other: alone, and among 12");
    for part in &kept.by_part {
        say!("  {:<32} {:>6.2} {:>6.2}", part.part, part.alone_ms, part.of_twelve_ms);
    }
    say!("weak scaling at 1 image a GPU, over {network} (goal {WEAK_GOAL} %):");
    say!("ranks  step ms  communication  exposed  positives  images/s/GPU  of 8 ranks");
    for row in &planned.weak {
        say!(
            "{:>5} {:>8.2} {:>14.2} {:>8.2} {:>10.0} {:>13.1} {:>9.0} %",
            row.ranks,
            row.step_ms,
            row.communication_ms,
            row.exposed_ms,
            row.positives,
            row.images_per_second_per_gpu,
            row.percent,
        );
    }
}

pub(super) fn json(about: &About<'_>, calibration: &Calibration, planned: &Planned) -> Value {
    let (args, memory) = (about.args, about.memory());
    let steps = planned.steps.iter().map(|step| {
        let mut value = json!(step);
        value["hidden_percent"] = step.hidden_percent().into();
        for (bucket, value) in
            step.buckets.iter().zip(value["buckets"].as_array_mut().into_iter().flatten())
        {
            let [nvlink, efa, infiniband] = about.by_wire(bucket.bytes as f64);
            value["by_wire"] = json!({"nvlink": nvlink, "efa": efa, "infiniband": infiniband});
        }
        value
    });
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
        "rates": args.rates,
        "network": about.network,
        "machine": about.machine,
        "calibration": calibration,
        "gradient_bytes": about.gradient_bytes(),
        "model_rates": about.model.rates.table(args.rates),
        "one_rank": planned.nodes,
        "evaluation": planned.evaluation,
        "minutes": planned.minutes,
        "steps": steps.collect::<Vec<_>>(),
        "memory": {
            "arena_bytes": memory.arena, "state_bytes": memory.state,
            "input_bytes": memory.inputs, "bucket_bytes": memory.buckets,
        },
        "kept": planned.kept,
        "weak_scaling": planned.weak,
    })
}
