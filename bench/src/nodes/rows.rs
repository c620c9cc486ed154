//! The launches of a step grouped by kernel, op and shapes: time, work, and share of the ceiling.
//!
//! FLOPs and bytes are counted for one node with all rows in use (at capacity). A node with several
//! kernels is one row, followed by the time of each kernel.

use std::collections::BTreeMap;

use device::Task;
use graph::Node;
use graph::capture::{LaunchList, Work};
use graph::exec::device::Prepared;
use kernels::TensorDesc;
use serde_json::{Value, json};

use super::ceilings::Ceilings;
use super::check::{Standing, Standings};
use crate::work;

/// Nodes with equal kernels, op and shapes.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    /// Name of the op, or of the work at the start or end of a step that belongs to no op.
    pub(crate) op: String,
    /// Shapes of inputs, outputs and updated tensors.
    pub(crate) shapes: String,
    /// `forward`, `backward`, `update`, or `step` at the start and end.
    pub(crate) pass: String,
    pub(crate) nodes: Vec<String>,
    /// Each kernel with the total microseconds of its launches.
    pub(crate) kernels: Vec<(String, f64)>,
    /// FLOPs and bytes of one node.
    pub(crate) flops: f64,
    pub(crate) bytes: f64,
    /// The worst check result of the row's nodes; `None` without a check.
    pub(crate) standing: Option<Standing>,
}

impl Row {
    /// Total microseconds of the row's nodes.
    pub(crate) fn us(&self) -> f64 {
        self.kernels.iter().map(|(_, us)| us).sum()
    }

    fn each_us(&self) -> f64 {
        self.us() / self.nodes.len() as f64
    }

    /// Fraction of the ceiling that is achieved: minimum time for the FLOPs and bytes, divided by
    /// the measured time.
    fn share(&self, ceilings: Option<&Ceilings>) -> Option<f64> {
        ceilings.map(|c| 1e3 * c.peak.least_ms(self.flops, self.bytes) / self.each_us())
    }

    /// Microseconds by which the nodes exceed the minimum time at the ceilings' rates; the total
    /// time if no ceilings are known.
    fn lost_us(&self, ceilings: Option<&Ceilings>) -> f64 {
        self.us() * (1.0 - self.share(ceilings).unwrap_or(0.0))
    }

    pub(crate) fn json(&self, ceilings: Option<&Ceilings>) -> Value {
        let each = self.each_us();
        let kernels: Vec<Value> =
            self.kernels.iter().map(|(name, us)| json!({"kernel": name, "us": us})).collect();
        json!({
            "op": self.op, "pass": self.pass, "shapes": self.shapes, "count": self.nodes.len(),
            "us": self.us(), "each_us": each, "flops": self.flops, "bytes": self.bytes,
            "tflops": self.flops / each / 1e6, "gb_per_s": self.bytes / each / 1e3,
            "share_of_ceiling": self.share(ceilings), "kernels": kernels, "nodes": self.nodes,
            "checked": self.standing.as_ref().map(Standing::word),
        })
    }
}

/// The rows of a step from the microseconds of each launch, largest loss first.
pub(crate) fn rows(
    prepared: &Prepared,
    list: &LaunchList,
    launch_us: &[f64],
    ceilings: Option<&Ceilings>,
    standings: Option<&Standings>,
) -> Vec<Row> {
    let mut us = launch_us.iter();
    let mut by_key: BTreeMap<_, Row> = BTreeMap::new();
    for (position, work) in list.works().iter().enumerate() {
        let names: Vec<&str> = launches(work).collect();
        let times: Vec<f64> = us.by_ref().take(names.len()).copied().collect();
        if names.is_empty() {
            continue;
        }
        let row = row(prepared, position, work, standings);
        let key = (names.join(" "), row.op.clone(), row.shapes.clone());
        let all = by_key.entry(key).or_insert_with(|| Row {
            nodes: vec![],
            kernels: names.iter().map(|name| (name.to_string(), 0.0)).collect(),
            ..row.clone()
        });
        all.nodes.extend(row.nodes);
        all.standing = all.standing.take().max(row.standing);
        for ((_, sum), us) in all.kernels.iter_mut().zip(times) {
            *sum += us;
        }
    }
    assert!(us.next().is_none(), "more times than launches");
    let mut rows: Vec<Row> = by_key.into_values().collect();
    rows.sort_by(|a, b| b.lost_us(ceilings).total_cmp(&a.lost_us(ceilings)));
    rows
}

fn launches(work: &Work) -> impl Iterator<Item = &'static str> {
    work.tasks().map(Task::name)
}

/// The node of the work at `position`; `None` for the work at the start and end of the step.
pub(crate) fn node_at(prepared: &Prepared, position: usize) -> Option<&Node> {
    let launch = prepared.schedule.launches().get(position.checked_sub(1)?)?;
    Some(&prepared.program.nodes()[launch.node.index()])
}

fn row(prepared: &Prepared, position: usize, work: &Work, standings: Option<&Standings>) -> Row {
    let mut row = Row {
        op: work.name.clone(),
        shapes: String::new(),
        pass: "step".into(),
        nodes: vec![work.name.clone()],
        kernels: vec![],
        flops: 0.0,
        bytes: 0.0,
        standing: None,
    };
    let Some(node) = node_at(prepared, position) else {
        // This work at the start or end of a step computes nothing: it only copies inputs.
        let written = work.tasks().flat_map(Task::touches).filter(|t| t.access.writes());
        row.bytes = 2.0 * written.map(|t| t.bytes as f64).sum::<f64>();
        return row;
    };
    let [inputs, outputs, updates] =
        [&node.inputs, &node.outputs, &node.updates].map(|list| prepared.program.descs(list));
    (row.flops, row.bytes) = work::on_device(node.op.as_ref(), &inputs, &outputs, &updates);
    row.op = node.op.name().into();
    row.pass = node.pass.to_string();
    row.shapes = format!("{} -> {}", shapes(&inputs), shapes(&outputs));
    if !updates.is_empty() {
        row.shapes += &format!(" updates {}", shapes(&updates));
    }
    row.standing = standings.and_then(|standings| standings.of(node));
    row
}

/// The shapes as text, such as `12x200x336x256 256x3x3x256`; a long list is truncated.
fn shapes(descs: &[TensorDesc]) -> String {
    const MOST: usize = 6;
    let shape = |desc: &TensorDesc| match &desc.shape[..] {
        [] => "[]".to_string(),
        extents => extents.iter().map(usize::to_string).collect::<Vec<_>>().join("x"),
    };
    let mut texts: Vec<String> = descs.iter().take(MOST).map(shape).collect();
    if descs.len() > MOST {
        texts.push(format!("and {} more", descs.len() - MOST));
    }
    texts.join(" ")
}

/// Prints the first `most` rows, and the total time of the remaining rows.
pub(crate) fn print(rows: &[Row], most: usize, ceilings: Option<&Ceilings>) {
    say!(
        "{:>9} {:>5} {:>9} {:>8} {:>8} {:>8}  kernel | op, shapes (first node)",
        "us",
        "count",
        "each",
        "TFLOP/s",
        "GB/s",
        "ceiling"
    );
    for row in rows.iter().take(most) {
        let each = row.each_us();
        let mark = match &row.standing {
            Some(Standing::Differs) => "  DIFFERS from the reference",
            Some(Standing::Skipped) => "  (not checked)",
            _ => "",
        };
        let (several, first) = (row.kernels.len() > 1, &row.kernels[0].0);
        say!(
            "{:>9.1} {:>5} {each:>9.1} {:>8.1} {:>8.0} {:>8}  {} | {}, {} ({}){mark}",
            row.us(),
            row.nodes.len(),
            row.flops / each / 1e6,
            row.bytes / each / 1e3,
            row.share(ceilings).map_or("?".into(), |share| format!("{:.0}%", 100.0 * share)),
            if several { format!("{} kernels", row.kernels.len()) } else { first.clone() },
            row.op,
            row.shapes,
            row.nodes[0],
        );
        for (name, us) in row.kernels.iter().filter(|_| several) {
            let each = us / row.nodes.len() as f64;
            say!("{:>15} {each:>9.1} {:>26}    {name}", "", "");
        }
    }
    if let Some(rest) = rows.get(most..).filter(|rest| !rest.is_empty()) {
        let us: f64 = rest.iter().map(Row::us).sum();
        say!("{us:>9.1} in {} more rows", rest.len());
    }
}
