//! The nodes of a planned step as text, by stream and one by one, and the minutes to the target.

use super::evaluation::Evaluation;
use super::minutes::Minutes;
use super::nodes::{NodePlan, NodesPlan, StreamPlan};
use super::rates::Rate;

/// Nodes listed without `--nodes`.
const LONGEST: usize = 16;
/// What the streams carry, by number.
const STREAMS: [&str; 4] = ["longest path", "weight gradients", "what can wait", "sums over ranks"];

/// One line a stream, the critical path, and the nodes that take longest, or all in order.
pub(super) fn nodes(plan: &NodesPlan, all: bool, images: usize) {
    let whole = plan.whole();
    say!("");
    say!(
        "one rank: {} nodes, {} kernels, {:.3} TFLOP and {:.2} GB an image",
        whole.nodes,
        whole.kernels,
        whole.flops / 1e12 / images as f64,
        whole.bytes / 1e9 / images as f64,
    );
    say!("stream                nodes kernels    TFLOP       GB  floor ms       ms");
    for (stream, sum) in &plan.streams {
        self::stream(&format!("{stream} {}", STREAMS.get(*stream).unwrap_or(&"")), sum);
    }
    stream("all, one by one", &whole);
    say!(
        "critical path: {:.2} ms over {} nodes; {} gaps between kernels take {:.2} ms of it",
        plan.step_ms,
        plan.critical_nodes,
        plan.critical_kernels,
        plan.critical_gaps_ms,
    );
    let mut listed: Vec<&NodePlan> = plan.nodes.iter().collect();
    if !all {
        listed.sort_by(|a, b| b.ms.total_cmp(&a.ms));
        listed.truncate(LONGEST);
        say!("the {LONGEST} nodes that take longest (--nodes lists all; *: on the critical path)");
    }
    say!("   start       ms    floor   GFLOP       MB   waves  s kernels  node");
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
}

fn stream(name: &str, sum: &StreamPlan) {
    say!(
        "{name:<20} {:>6} {:>7} {:>8.3} {:>8.2} {:>9.2} {:>8.2}",
        sum.nodes,
        sum.kernels,
        sum.flops / 1e12,
        sum.bytes / 1e9,
        sum.floor_ms,
        sum.ms,
    );
}

/// The model's rates.
pub(super) fn rates(table: &[Rate]) {
    say!("");
    say!("rate                                    guessed         measured  source");
    for rate in table {
        let measured = rate.measured.map_or("not yet".to_string(), |value| format!("{value:.1}"));
        say!(
            "{:<36} {:>10.2} {:<11} {:>8}  {}",
            rate.what,
            rate.guessed,
            rate.unit,
            measured,
            rate.source,
        );
    }
}

/// The run to the target.
/// How long an evaluation keeps the GPUs from training.
pub(super) fn evaluation(of: &Evaluation, ranks: usize) {
    say!("");
    say!(
        "an evaluation of {} images: training waits {:.2} s on {ranks} GPUs: {} batches of {} at \
         {:.2} ms for the model and {:.2} ms for its inputs and results, {:.2} s for the state",
        of.images,
        of.seconds,
        of.batches,
        of.batch,
        of.model_ms,
        of.copies_ms,
        of.state_seconds,
    );
}

pub(super) fn minutes(run: &Minutes) {
    let record = run.record.map_or(String::new(), |best| format!("; the record is {best:.2}"));
    say!("");
    say!(
        "to box 0.377 and mask 0.339: {:.1} minutes{record}. {} epochs at a global batch of {}, \
         {:.2} ms a step over real shapes: {:.1} of training, {:.1} of evaluation ({:.2} s each), \
         {:.1} of start and end",
        run.total,
        run.epochs,
        run.global_batch,
        run.step_ms,
        run.training,
        run.evaluation,
        run.evaluation_seconds,
        run.start_and_end,
    );
}
