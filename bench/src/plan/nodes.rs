//! One rank's step node by node: work, floor, predicted time, and the path that decides its length.

use std::collections::BTreeMap;

use graph::program::Pass;
use serde::Serialize;

use super::model::Work;
use super::step::Setting;
use super::timeline::{Span, Task, last_end, simulate};
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
    /// Duration when nothing else runs, with the gaps between its kernels.
    pub(super) ms: f64,
    pub(super) start_ms: f64,
    pub(super) end_ms: f64,
    /// True if it is on the path that decides the step's length.
    pub(super) critical: bool,
    #[serde(skip)]
    kind: Kind,
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
    /// Nodes of the critical path.
    pub(super) critical_nodes: usize,
    pub(super) critical_kernels: usize,
}

impl NodesPlan {
    /// The sum over all streams.
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
            kind: node.kind,
        };
        self.nodes.iter().filter(|node| !node.kernels.is_empty()).map(bar).collect()
    }
}

/// Plans every node of a step of one rank.
pub(super) fn plan(setting: &Setting<'_>) -> NodesPlan {
    let model = setting.model;
    let works = model.works(setting.positives, setting.case);
    let tasks: Vec<Task> = works.iter().map(Task::of).collect();
    let spans = simulate(&tasks);
    let path = critical_path(&tasks, &spans);
    let program = &model.prepared.program;
    let node = |(i, (work, span)): (usize, (&Work, &Span))| NodePlan {
        name: program.node_name(work.node),
        stream: work.stream,
        kernels: work.kernels.clone(),
        flops: work.flops,
        bytes: work.bytes,
        blocks: work.blocks,
        waves: work.waves,
        floor_ms: work.floor_ms,
        ms: work.ms,
        start_ms: span.start,
        end_ms: span.end,
        critical: path.contains(&i),
        kind: match program.nodes()[work.node.index()].pass {
            Pass::Forward => Kind::Forward,
            Pass::Backward => Kind::Backward,
            Pass::Update => Kind::Update,
        },
    };
    let nodes: Vec<NodePlan> = works.iter().zip(&spans).enumerate().map(node).collect();
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
    NodesPlan {
        step_ms: last_end(&spans),
        critical_nodes: path.len(),
        critical_kernels: path.iter().map(|i| nodes[*i].kernels.len()).sum(),
        nodes,
        streams,
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
    use crate::plan::model::Model;
    use crate::plan::wires::{Fabric, MACHINES};
    use configs::Config;
    use dali::order::PaddedShape;
    use device::Gpu;
    use kernels::time::Case;

    fn task(stream: usize, ms: f64, waits: &[usize]) -> Task {
        Task { stream, ms, share: 0.1, keeps: false, waits: waits.to_vec() }
    }

    /// Every kernel of the step is counted once, and the path goes from its start to its end
    /// without a hole.
    #[test]
    fn the_nodes_of_a_step_add_up() {
        let config = Config::load("mlperf_r50", &[]).expect("a preset");
        let small = PaddedShape { height: 256, width: 320 };
        let model = Model::new(&config, 1, small, &Gpu::a100()).expect("a model");
        let fabric = Fabric { ranks: 1, nvlink: MACHINES[0].nvlink, network: MACHINES[0].efa };
        let (case, positives) = (Case::Expected, 64.0);
        let setting = Setting { model: &model, case, fabric, bucket_mib: 50.0, positives };
        let found = plan(&setting);
        let works = model.works(positives, case);
        let kernels: usize = works.iter().map(|work| work.kernels.len()).sum();
        assert_eq!(found.whole().kernels, kernels);
        assert_eq!(found.step_ms, super::super::step::plan(&setting).compute_ms);
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
