//! The measurements after the check: each launch, the graph, the graph on one stream, the timeline.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use device::Device;
use engine::train::Trainer;
use graph::exec::device::{EventCost, Prepared, Stopwatch};
use graph::timeline::{Span, StampCost};
use graph::{DeviceExecutor, GraphError};
use serde_json::{Value, json};

use super::Figures;
use super::ceilings::Ceilings;
use super::check::Standings;
use super::rows::{self, Row};
use crate::report::{percentile, write_json};

/// Number of warm-up steps, run as graphs.
const WARM_UP: usize = 2;
/// Number of timestamps recorded to measure the cost of one.
const STAMPS: usize = 1000;
/// Index of the only program: there is one padded shape and one micro-step.
const PROGRAM: usize = 0;

/// The settings of a measurement, the ceilings, and the check's results.
pub(super) struct Options<'a> {
    pub(super) repeats: usize,
    /// Number of rows to print.
    pub(super) rows: usize,
    pub(super) ceilings: Option<&'a Ceilings>,
    pub(super) standings: Option<&'a Standings>,
    pub(super) timeline: Option<&'a Path>,
}

/// The times of several steps; each step is timed as one interval per launch, or as one interval
/// for the whole graph.
struct Runs {
    /// Microseconds of each interval, one list per step.
    us: Vec<Vec<f64>>,
    /// Number of steps in which the device had to wait for the host to enqueue work.
    late: usize,
    /// Maximum time that the host needed to enqueue a step, in milliseconds.
    host_ms: f64,
}

impl Runs {
    /// The median microseconds of each interval.
    fn medians(&self) -> Vec<f64> {
        let pieces = self.us.first().map_or(0, Vec::len);
        let piece = |i: usize| self.us.iter().map(|run| run[i]).collect::<Vec<_>>();
        (0..pieces).map(|i| percentile(&piece(i), 0.5)).collect()
    }

    /// Milliseconds of whole steps: median, minimum and maximum.
    fn ms(&self) -> [f64; 3] {
        let sums: Vec<f64> = self.us.iter().map(|run| run.iter().sum::<f64>() / 1e3).collect();
        [0.5, 0.0, 1.0].map(|share| percentile(&sums, share))
    }

    fn json(&self) -> Value {
        let [ms, least, most] = self.ms();
        json!({"ms": ms, "least_ms": least, "most_ms": most, "late": self.late})
    }
}

/// Submits a step to the device and times it.
type Timed<'a> = dyn FnMut(&mut DeviceExecutor, &mut Stopwatch) -> Result<(), GraphError> + 'a;

pub(super) fn run(
    mut trainer: Trainer,
    device: &Arc<dyn Device>,
    options: &Options<'_>,
    figures: &mut Figures<'_>,
) -> anyhow::Result<()> {
    let kernels = trainer.graphs()[PROGRAM].kernels;
    let mut watch = Stopwatch::new(device.clone(), kernels)?;
    for _ in 0..WARM_UP {
        trainer.step_by(&mut |executor, program| executor.submit(program).map(drop))?;
    }
    let cost = Stopwatch::cost(device)?;
    say!(
        "timing: {:.2} us between two events, {:.2} us with an empty launch between",
        cost.empty_us,
        cost.launch_us
    );
    let value = json!({"empty_us": cost.empty_us, "launch_us": cost.launch_us});
    figures.add("event_cost", value)?;

    let launches = steps(&mut trainer, &mut watch, options.repeats, &mut |executor, watch| {
        executor.submit_launches(PROGRAM, watch).map(drop)
    })?;
    let rows = of_launches(&mut trainer, &launches, options)?;
    let list = rows.iter().map(|row| row.json(options.ceilings)).collect();
    figures.add("rows", Value::Array(list))?;
    let sum_ms = launches.medians().iter().sum::<f64>() / 1e3;
    let value = json!({
        "kernels": kernels, "sum_ms": sum_ms, "late": launches.late, "host_ms": launches.host_ms,
        "events_ms": kernels as f64 * cost.empty_us / 1e3,
    });
    figures.add("launches", value)?;

    let graph = steps(&mut trainer, &mut watch, options.repeats, &mut |executor, watch| {
        executor.submit_timed(PROGRAM, watch).map(drop)
    })?;
    figures.add("graph", graph.json())?;
    figures.add("gap_ms", (graph.ms()[0] - sum_ms).into())?;

    let one = executor(&mut trainer)?.capture_on_one_stream(PROGRAM)?;
    let alone = steps(&mut trainer, &mut watch, options.repeats, &mut |executor, watch| {
        executor.submit_on_one_stream(&one, watch).map(drop)
    })?;
    figures.add("graph_on_one_stream", alone.json())?;
    print_whole(kernels, sum_ms, &cost, &launches, &graph, &alone);
    match options.timeline {
        Some(path) => timeline(&mut trainer, device, &mut watch, path, figures),
        None => Ok(()),
    }
}

fn executor(trainer: &mut Trainer) -> anyhow::Result<&mut DeviceExecutor> {
    trainer.device_executor().context("the trainer is not on a device")
}

/// Runs `repeats` steps after an unrecorded one, from which the stopwatch learns how far ahead the
/// host must enqueue.
fn steps(
    trainer: &mut Trainer,
    watch: &mut Stopwatch,
    repeats: usize,
    submit: &mut Timed<'_>,
) -> anyhow::Result<Runs> {
    let mut runs = Runs { us: vec![], late: 0, host_ms: 0.0 };
    for repeat in 0..=repeats {
        trainer.step_by(&mut |executor, _| submit(executor, watch))?;
        let late = watch.host_ms() > watch.lead_ms()?;
        let us = watch.read_us()?;
        if repeat > 0 {
            runs.us.push(us);
            runs.late += usize::from(late);
            runs.host_ms = runs.host_ms.max(watch.host_ms());
        }
    }
    Ok(runs)
}

/// Builds and prints the table of launches.
fn of_launches(
    trainer: &mut Trainer,
    launches: &Runs,
    options: &Options<'_>,
) -> anyhow::Result<Vec<Row>> {
    let executor = executor(trainer)?;
    let (prepared, list) = (&executor.programs()[PROGRAM], &executor.launch_lists()[PROGRAM]);
    let medians = launches.medians();
    let rows = rows::rows(prepared, list, &medians, options.ceilings, options.standings);
    rows::print(&rows, options.rows, options.ceilings);
    Ok(rows)
}

fn print_whole(
    kernels: usize,
    sum_ms: f64,
    cost: &EventCost,
    launches: &Runs,
    graph: &Runs,
    alone: &Runs,
) {
    let ([ms, least, most], [one, ..]) = (graph.ms(), alone.ms());
    say!(
        "sum of {kernels} launches {sum_ms:.3} ms (of which timing events take {:.3} ms)",
        kernels as f64 * cost.empty_us / 1e3
    );
    say!("the graph {ms:.3} ms ({least:.3} to {most:.3}), {:.3} ms beyond that sum", ms - sum_ms);
    say!("the graph on one stream {one:.3} ms: several streams save {:.3} ms", one - ms);
    let late = launches.late + graph.late + alone.late;
    if late > 0 {
        say!("in {late} of these steps the device waited for the host: their times are too long");
    }
}

/// Replays the graph with timestamps, and writes the timeline of the replay.
fn timeline(
    trainer: &mut Trainer,
    device: &Arc<dyn Device>,
    watch: &mut Stopwatch,
    path: &Path,
    figures: &mut Figures<'_>,
) -> anyhow::Result<()> {
    let cost = StampCost::measure(device.as_ref(), STAMPS)?;
    let stamped = executor(trainer)?.capture_with_stamps(PROGRAM)?;
    // The first replay of a graph is not recorded.
    let run = steps(trainer, watch, 1, &mut |executor, watch| {
        executor.submit_with_stamps(&stamped, watch).map(drop)
    })?;
    let spans = stamped.spans()?;
    let prepared = &executor(trainer)?.programs()[PROGRAM];
    let [ms, ..] = run.ms();
    say!(
        "timeline: one replay with {} stamps: {ms:.3} ms; one stamp takes {:.2} us, and the \
         clock's resolution is {} ns ({} different times of {} stamps)",
        2 * spans.len(),
        cost.each_us,
        cost.step_ns,
        cost.distinct,
        cost.stamps,
    );
    let about = ["device", "commit", "preset", "batch_size", "padded"];
    let about = about.map(|key| (key.to_string(), figures.value[key].clone()));
    write_json(path, &trace(prepared, &spans, about.into_iter().collect()))?;
    let value = json!({
        "ms": ms, "stamp_us": cost.each_us, "clock_step_ns": cost.step_ns,
        "distinct_times": cost.distinct, "stamps_measured": cost.stamps,
    });
    figures.add("timeline", value)
}

/// Spans in the Trace Event Format of Perfetto and chrome://tracing: one thread per stream.
fn trace(prepared: &Prepared, spans: &[Span], about: Value) -> Value {
    let event = |span: &Span| {
        let pass = rows::node_at(prepared, span.work).map(|node| node.pass.to_string());
        json!({
            "name": span.name, "cat": pass.unwrap_or("step".into()), "ph": "X",
            "ts": span.start_ns as f64 / 1e3, "dur": (span.end_ns - span.start_ns) as f64 / 1e3,
            "pid": 0, "tid": span.stream,
        })
    };
    let events: Vec<Value> = spans.iter().map(event).collect();
    json!({"traceEvents": events, "otherData": about})
}
