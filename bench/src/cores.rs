//! `--cores`: the time of a program on more cores than there are, from its tasks.
//!
//! One thread runs the program as it is divided for N cores, and times each task of its products; a
//! task goes to the core that is free first ([`kernels::tasks`]). N cores divide the share of every
//! other op that two threads divide here. Memory that cores share, their clock under load and the
//! cost of waking threads are left out: the figures are a bound, what the division of the work
//! allows.

use std::collections::BTreeMap;

use clap::builder::{RangedU64ValueParser, TypedValueParser};
use graph::CpuExecutor;
use kernels::tasks::Rehearsed;
use rayon::{ThreadPool, ThreadPoolBuilder};
use serde_json::{Value, json};

/// Runs of the program for a row.
const RUNS: usize = 2;

/// A program that can be rehearsed.
pub(crate) trait Rehearsable: Send {
    /// Its executors.
    fn executors(&mut self) -> Vec<&mut CpuExecutor>;

    /// Runs it.
    fn run(&mut self) -> anyhow::Result<()>;
}

/// Seconds of an op's nodes.
#[derive(Clone, Copy, Default)]
struct Op {
    seconds: f64,
    tasks: Rehearsed,
}

type Ops = BTreeMap<&'static str, Op>;

/// Reads a number of cores.
pub(crate) fn count() -> impl TypedValueParser<Value = usize> {
    RangedU64ValueParser::<usize>::new().range(1..=4096)
}

/// Refuses `--cores` where no single process runs on the CPU.
pub(crate) fn check(cores: &[usize], elsewhere: bool) -> anyhow::Result<()> {
    let fits = cores.is_empty() || !elsewhere;
    anyhow::ensure!(fits, "--cores simulates one process on the CPU: add --device cpu, no --ranks");
    Ok(())
}

/// Prints a row for each number of cores.
pub(crate) fn print(subject: &mut dyn Rehearsable, cores: &[usize]) -> anyhow::Result<Value> {
    let pool = |threads| ThreadPoolBuilder::new().num_threads(threads).build();
    let (one, two) = (pool(1)?, pool(2)?);
    let (alone, both) = (time(subject, &one, None)?, time(subject, &two, None)?);
    say!("cores  simulated ms  times one  of the cores   products alone");
    let mut rows = Vec::new();
    for &cores in cores {
        let ops = time(subject, &one, Some(cores))?;
        let (mut all, mut simulated) = (0.0, 0.0);
        let mut products = Rehearsed::default();
        for (name, op) in &ops {
            let rest = op.seconds - op.tasks.alone;
            let serial = if op.tasks.alone > 0.0 { 1.0 } else { serial(name, &alone, &both) };
            all += op.seconds;
            simulated += op.tasks.divided + rest * (serial + (1.0 - serial) / cores as f64);
            products += op.tasks;
        }
        let (times, of_products) = (all / simulated, products.alone / products.divided);
        say!(
            "{cores:>5}  {:>12.1}  {times:>9.2}  {:>11.0}%   {of_products:>14.2}",
            1e3 * simulated,
            100.0 * times / cores as f64,
        );
        rows.push(json!({
            "cores": cores, "simulated_ms": 1e3 * simulated, "times_one": times,
            "products_times_one": of_products,
        }));
    }
    Ok(rows.into())
}

/// The share of an op that two threads do not divide.
fn serial(name: &str, alone: &Ops, both: &Ops) -> f64 {
    let seconds = |ops: &Ops| ops.get(name).map_or(0.0, |op| op.seconds);
    (2.0 * seconds(both) / seconds(alone).max(f64::MIN_POSITIVE) - 1.0).clamp(0.0, 1.0)
}

/// Mean seconds of each kind of op.
fn time(
    subject: &mut dyn Rehearsable,
    pool: &ThreadPool,
    cores: Option<usize>,
) -> anyhow::Result<Ops> {
    for executor in subject.executors() {
        executor.rehearse(cores);
    }
    pool.install(|| subject.run())?;
    subject.executors().into_iter().for_each(CpuExecutor::reset_timers);
    (0..RUNS).try_for_each(|_| pool.install(|| subject.run()))?;
    let mut ops = Ops::new();
    for executor in subject.executors() {
        executor.rehearse(None);
        let (seconds, tasks) = (executor.node_seconds(), executor.node_rehearsals());
        for ((node, seconds), tasks) in executor.program().nodes().iter().zip(seconds).zip(tasks) {
            let op = ops.entry(node.op.name()).or_default();
            op.seconds += seconds;
            op.tasks += tasks;
        }
    }
    Ok(ops)
}
