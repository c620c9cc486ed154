//! One rank's step node by node: work, floor, predicted time, and the path that decides its length.

use std::collections::BTreeMap;

use graph::program::Pass;
use serde::Serialize;

use super::model::{Model, Work};
use super::plan::Setting;
use super::rates::GAP_MS;
use super::simulate::{Span, Task, simulate};
use crate::peaks::Peak;
use crate::svg::{Bar, Kind};

/// A node in the predicted time line.
#[derive(Debug, Clone, Serialize)]
pub(super) struct NodePlan {
    pub(super) name: String,
    pub(super) stream: usize,
    pub(super) kernels: Vec<&'static str>,
    pub(super) flops: f64,
    pub(super) bytes: f64,
    /// Blocks of its main launch that have work, and how often they fill the GPU.
    pub(super) blocks: f64,
    pub(super) waves: f64,
    /// By the data sheet: products and bytes at full rate.
    pub(super) floor_ms: f64,
    /// Alone, with the gaps between its kernels.
    pub(super) ms: f64,
    pub(super) start_ms: f64,
    pub(super) end_ms: f64,
    /// Is it on the path that decides the step's length?
    pub(super) critical: bool,
    #[serde(skip)]
    kind: Option<Kind>,
}

/// The nodes of a stream together.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct StreamPlan {
    pub(super) nodes: usize,
    pub(super) kernels: usize,
    pub(super) flops: f64,
    pub(super) bytes: f64,
    pub(super) floor_ms: f64,
    pub(super) ms: f64,
}

/// The nodes of a step of one rank.
#[derive(Debug, Clone, Serialize)]
pub(super) struct NodesPlan {
    pub(super) nodes: Vec<NodePlan>,
    pub(super) streams: BTreeMap<usize, StreamPlan>,
    pub(super) step_ms: f64,
    /// Nodes of the critical path, and the kernels' gaps on it.
    pub(super) critical_nodes: usize,
    pub(super) critical_kernels: usize,
    pub(super) critical_gaps_ms: f64,
}

impl NodesPlan {
    /// Of all streams.
    pub(super) fn whole(&self) -> StreamPlan {
        self.streams.values().fold(StreamPlan::default(), |sum, one| StreamPlan {
            nodes: sum.nodes + one.nodes,
            kernels: sum.kernels + one.kernels,
            flops: sum.flops + one.flops,
            bytes: sum.bytes + one.bytes,
            floor_ms: sum.floor_ms + one.floor_ms,
            ms: sum.ms + one.ms,
        })
    }

    /// The time line's bars.
    pub(super) fn bars(&self) -> Vec<Bar> {
        let bar = |node: &NodePlan| Bar {
            name: node.name.clone(),
            stream: node.stream,
            start_us: 1e3 * node.start_ms,
            end_us: 1e3 * node.end_ms,
            kind: node.kind.unwrap_or(Kind::Ends),
        };
        self.nodes.iter().filter(|node| !node.kernels.is_empty()).map(bar).collect()
    }
}

/// Plans every node of a step of one rank.
pub(super) fn plan(setting: &Setting<'_>) -> NodesPlan {
    let model = setting.model;
    let works = model.works(setting.positives);
    let tasks = setting.calibration.tasks(works.clone());
    let spans = simulate(&tasks);
    let path = critical_path(&tasks, &spans);
    let sheet = Peak::of(&model.gpu.name);
    let nodes: Vec<NodePlan> = works
        .iter()
        .zip(tasks.iter().zip(&spans))
        .enumerate()
        .map(|(i, (work, (task, span)))| {
            let own = node(model, work, sheet);
            let (start_ms, end_ms) = (span.start, span.end);
            NodePlan { ms: task.ms, start_ms, end_ms, critical: path.contains(&i), ..own }
        })
        .collect();
    let mut streams: BTreeMap<usize, StreamPlan> = BTreeMap::new();
    for node in &nodes {
        let stream = streams.entry(node.stream).or_default();
        stream.nodes += 1;
        stream.kernels += node.kernels.len();
        stream.flops += node.flops;
        stream.bytes += node.bytes;
        stream.floor_ms += node.floor_ms;
        stream.ms += node.ms;
    }
    let critical_kernels = path.iter().map(|i| nodes[*i].kernels.len()).sum();
    NodesPlan {
        step_ms: spans.iter().map(|span| span.end).fold(0.0, f64::max),
        critical_nodes: path.len(),
        critical_kernels,
        critical_gaps_ms: GAP_MS * critical_kernels as f64,
        nodes,
        streams,
    }
}

fn node(model: &Model, work: &Work, sheet: Option<Peak>) -> NodePlan {
    let program = &model.prepared.program;
    let largest = work.pieces.iter().max_by(|a, b| a.alone.ms.total_cmp(&b.alone.ms));
    let flops = work.pieces.iter().map(|piece| piece.flops).sum();
    let bytes = work.pieces.iter().map(|piece| piece.bytes).sum();
    let node = &program.nodes()[work.node.index()];
    // The data sheet's rate is that of tensor cores: other ops have their bytes as a floor.
    let products = if node.op.on_tensor_cores() { flops } else { 0.0 };
    NodePlan {
        name: program.node_name(work.node),
        stream: work.stream,
        kernels: work.pieces.iter().map(|piece| piece.kernel).collect(),
        flops,
        bytes,
        blocks: largest.map_or(0.0, |piece| piece.blocks),
        waves: largest.map_or(0.0, |piece| piece.waves),
        floor_ms: sheet.map_or(0.0, |peak| peak.least_ms(products, bytes)),
        ms: 0.0,
        start_ms: 0.0,
        end_ms: 0.0,
        critical: false,
        kind: Some(match node.pass {
            Pass::Forward => Kind::Forward,
            Pass::Backward => Kind::Backward,
            Pass::Update => Kind::Update,
        }),
    }
}

/// The tasks that decide when the last one ends, from first to last: each starts when the one
/// before it, on its stream or one that it waits for, has ended.
fn critical_path(tasks: &[Task], spans: &[Span]) -> Vec<usize> {
    let last = (0..tasks.len()).max_by(|a, b| spans[*a].end.total_cmp(&spans[*b].end));
    let mut path: Vec<usize> = Vec::new();
    let mut at = last;
    while let Some(i) = at {
        path.push(i);
        let on_stream = (0..i).rev().find(|before| tasks[*before].stream == tasks[i].stream);
        let before = tasks[i].waits.iter().copied().chain(on_stream);
        at = before.max_by(|a, b| spans[*a].end.total_cmp(&spans[*b].end));
    }
    path.reverse();
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scale::calibration::Calibration;
    use crate::scale::stage::Stage;
    use crate::scale::wires::{Fabric, MACHINES};
    use configs::Config;
    use dali::order::PaddedShape;
    use device::Gpu;

    fn task(stream: usize, ms: f64, waits: &[usize]) -> Task {
        Task { stream, ms, share: 0.1, keeps: false, waits: waits.to_vec() }
    }

    /// Every kernel of the step is counted once, and the path goes from its start to its end
    /// without a hole.
    #[test]
    fn the_nodes_of_a_step_add_up() {
        let config = Config::load("mlperf_r50", &[]).expect("a preset");
        let small = PaddedShape { height: 256, width: 320 };
        let gpu = Gpu::a100();
        let model = Model::new(&config, 1, small, &gpu).expect("a model");
        let calibration = Calibration::new(&gpu, Stage::Now).expect("a calibration");
        let fabric = Fabric { ranks: 1, nvlink: MACHINES[0].nvlink, network: MACHINES[0].efa };
        let positives = 64.0;
        let setting = Setting {
            model: &model,
            calibration: &calibration,
            fabric,
            bucket_mib: 50.0,
            positives,
            equal: true,
        };
        let found = plan(&setting);
        let kernels: usize = model.works(positives).iter().map(|work| work.pieces.len()).sum();
        assert_eq!(found.whole().kernels, kernels);
        assert_eq!(found.step_ms, super::super::plan::plan(&setting).compute_ms);
        let mut at = 0.0;
        for node in found.nodes.iter().filter(|node| node.critical) {
            assert!((node.start_ms - at).abs() < 1e-9, "{} at {at}", node.name);
            at = node.end_ms;
        }
        assert!((at - found.step_ms).abs() < 1e-9);
        assert!(found.step_ms > found.streams[&0].floor_ms && found.step_ms < found.whole().ms);
    }

    #[test]
    fn the_critical_path_goes_over_streams() {
        let tasks = [
            task(0, 1.0, &[]),
            task(1, 5.0, &[0]),
            task(0, 2.0, &[]),
            task(0, 1.0, &[1]),
            task(2, 3.0, &[]),
        ];
        assert_eq!(critical_path(&tasks, &simulate(&tasks)), [0, 1, 3]);
    }
}
