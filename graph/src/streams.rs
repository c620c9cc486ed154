//! Assigns each node to a GPU stream, by a cost model: duration from FLOPs and bytes, and slack, by
//! which a node may end later without making the step longer.

use device::Gpu;
use kernels::time::{Case, Rates};

use crate::program::Pass;
use crate::report::node_cost;
use crate::{Node, Program, TensorId};

pub use crate::stream_roles::{BESIDE, COMMUNICATION, MAIN, WEIGHT_GRADIENTS};

/// A node runs on the concurrent stream if its slack is at least this multiple of its duration,
/// since it may also have to wait for earlier nodes on that stream.
const SLACK: f64 = 4.0;
/// Output elements of a GEMM per tile, which is one thread block: if there are fewer tiles than
/// SMs, other nodes can run concurrently.
const TILE: usize = 128 * 128;
/// Outputs of a node on the concurrent stream stay in memory longer. To keep the arena from
/// growing, they may have at most 1/`LARGEST_BY` of the bytes of the largest tensor.
const LARGEST_BY: usize = 8;

/// The stream of each node of a program on a GPU.
pub(crate) fn on_gpu(program: &Program, gpu: &Gpu) -> Vec<usize> {
    let early = read_before_update(program);
    let mut streams: Vec<usize> = program
        .nodes()
        .iter()
        .map(|node| match node.op.traits().communicates {
            true => COMMUNICATION,
            false if is_weight_gradient(node, &early) => WEIGHT_GRADIENTS,
            false => MAIN,
        })
        .collect();
    let paths = Paths::new(program, gpu);
    let bytes = |t: &TensorId| program.desc(*t).gpu_bytes(gpu.precision);
    let limit = largest_output(program, gpu) / LARGEST_BY;
    for (i, node) in program.nodes().iter().enumerate() {
        let leaves_room = !node.op.traits().on_tensor_cores || {
            let outputs = node.outputs.first().map_or(0, |t| program.desc(*t).len());
            outputs.div_ceil(TILE) < gpu.multiprocessors
        };
        let is_small = node.outputs.iter().map(bytes).sum::<usize>() <= limit;
        let is_step = node.pass != Pass::Update && node.updates.is_empty();
        if streams[i] == MAIN && is_step && leaves_room && is_small && paths.has_slack(i) {
            streams[i] = BESIDE;
        }
    }
    return_late(program, &paths.us, &mut streams);
    streams
}

/// For each node of the main stream, the concurrent nodes for which it additionally waits: nodes
/// that read a large tensor after its last reader on the main stream. Without the wait, the tensor
/// would stay in memory longer.
pub(crate) fn readers_to_wait_for(
    program: &Program,
    gpu: &Gpu,
    streams: &[usize],
) -> Vec<Vec<usize>> {
    let nodes = program.nodes();
    let mut last = vec![0; program.tensors().len()];
    for (i, node) in nodes.iter().enumerate().filter(|(i, _)| streams[*i] != BESIDE) {
        node.inputs.iter().for_each(|t| last[t.index()] = i);
    }
    let limit = largest_output(program, gpu) / LARGEST_BY;
    let mut waits = vec![vec![]; nodes.len()];
    for (i, node) in nodes.iter().enumerate().filter(|(i, _)| streams[*i] == BESIDE) {
        let large =
            node.inputs.iter().filter(|t| program.desc(**t).gpu_bytes(gpu.precision) > limit);
        let Some(free) = large.map(|t| last[t.index()].max(i) + 1).max() else { continue };
        if let Some(next) = (free..nodes.len()).find(|next| streams[*next] == MAIN) {
            waits[next].push(i);
        }
    }
    waits
}

/// Moves nodes from the concurrent to the main stream until, by the cost model, the main stream is
/// never delayed by a concurrent node.
fn return_late(program: &Program, us: &[f64], streams: &mut [usize]) {
    let writers = program.writers();
    let inputs = |i: usize| program.nodes()[i].inputs.iter().filter_map(|t| writers[t.index()]);
    loop {
        let mut ends: Vec<f64> = Vec::with_capacity(us.len());
        let mut free = [0f64; COMMUNICATION + 1];
        let mut late = Vec::new();
        for (i, us) in us.iter().enumerate() {
            let stream = streams[i];
            let ready = |beside: bool| {
                let of_kind = inputs(i).filter(|from| (streams[*from] == BESIDE) == beside);
                of_kind.max_by(|a, b| ends[*a].total_cmp(&ends[*b]))
            };
            let end = |from: Option<usize>| from.map_or(0.0, |from| ends[from]);
            let start = free[stream].max(end(ready(false)));
            if stream == MAIN {
                late.extend(ready(true).filter(|from| ends[*from] > start));
            }
            let end = us + start.max(end(ready(true)));
            free[stream] = end;
            ends.push(end);
        }
        if late.is_empty() {
            return;
        }
        late.into_iter().for_each(|i| streams[i] = MAIN);
    }
}

/// Bytes of the largest tensor that a node writes.
fn largest_output(program: &Program, gpu: &Gpu) -> usize {
    let outputs = program.nodes().iter().flat_map(|node| &node.outputs);
    outputs.map(|t| program.desc(*t).gpu_bytes(gpu.precision)).max().unwrap_or(0)
}

/// Per tensor: true if a node before the update reads it, all-reduces excepted.
fn read_before_update(program: &Program) -> Vec<bool> {
    let mut read = vec![false; program.tensors().len()];
    let reads = |node: &&Node| node.pass != Pass::Update && !node.op.traits().communicates;
    for node in program.nodes().iter().filter(reads) {
        for t in &node.inputs {
            read[t.index()] = true;
        }
    }
    read
}

/// True for a backward node whose results are read only by the update.
fn is_weight_gradient(node: &Node, read_before_update: &[bool]) -> bool {
    node.pass == Pass::Backward
        && node.updates.is_empty()
        && node.outputs.iter().all(|t| !read_before_update[t.index()])
}

/// Longest paths through a program in which every node starts as soon as its inputs are ready.
struct Paths {
    us: Vec<f64>,
    /// Per node, the longest path from the start of the step to the node's end (`to`), and from
    /// there to the end of the step (`from`).
    to: Vec<f64>,
    from: Vec<f64>,
    longest: f64,
}

impl Paths {
    fn new(program: &Program, gpu: &Gpu) -> Self {
        let nodes = program.nodes();
        let rates = Rates::of(gpu, Case::Expected);
        let us: Vec<f64> =
            nodes.iter().map(|node| duration_us(program, node, gpu, &rates)).collect();
        let mut ready = vec![0f64; program.tensors().len()];
        let mut to = Vec::with_capacity(nodes.len());
        for (node, us) in nodes.iter().zip(&us) {
            let end = us + node.inputs.iter().map(|t| ready[t.index()]).fold(0.0, f64::max);
            node.outputs.iter().for_each(|t| ready[t.index()] = end);
            to.push(end);
        }
        let mut rest = vec![0f64; program.tensors().len()];
        let mut from = vec![0f64; nodes.len()];
        for (i, node) in nodes.iter().enumerate().rev() {
            from[i] = node.outputs.iter().map(|t| rest[t.index()]).fold(0.0, f64::max);
            for t in &node.inputs {
                rest[t.index()] = rest[t.index()].max(from[i] + us[i]);
            }
        }
        let longest = to.iter().copied().fold(0.0, f64::max);
        Self { us, to, from, longest }
    }

    fn has_slack(&self, node: usize) -> bool {
        let slack = self.longest - self.to[node] - self.from[node];
        slack >= SLACK * self.us[node]
    }
}

/// Estimated duration of a node.
fn duration_us(program: &Program, node: &Node, gpu: &Gpu, rates: &Rates) -> f64 {
    let flops = node_cost(program, node).flops as f64;
    let bytes =
        node.inputs.iter().chain(&node.outputs).map(|t| program.desc(*t).gpu_bytes(gpu.precision));
    rates.node_us(node.op.traits().on_tensor_cores, flops, bytes.sum::<usize>() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernels::ops::relu_mask::ReluMask;
    use kernels::{Role, TensorDesc};

    const LARGE: usize = 1 << 24;
    const SMALL: usize = 64;

    /// A chain of `len` nodes from `x`; returns its end.
    fn chain(program: &mut Program, mut x: TensorId, len: usize) -> TensorId {
        for _ in 0..len {
            x = program.apply1(ReluMask, [x, x]).expect("two of a shape");
        }
        x
    }

    fn input(program: &mut Program, name: &str, len: usize) -> TensorId {
        program.input(name, TensorDesc::new(Role::Gradient, &[len]))
    }

    fn streams(program: &Program) -> Vec<usize> {
        on_gpu(program, &Gpu::a100())
    }

    /// With one long and one short chain, the short one runs concurrently, regardless of program
    /// order.
    #[test]
    fn off_critical_path_nodes_go_to_side_stream() {
        let mut p = Program::new();
        let (large, small) = (input(&mut p, "large", LARGE), input(&mut p, "small", SMALL));
        chain(&mut p, small, 2);
        chain(&mut p, large, 3);
        chain(&mut p, small, 1);
        assert_eq!(streams(&p), [BESIDE, BESIDE, MAIN, MAIN, MAIN, BESIDE]);
    }

    /// In two equal chains no node has slack.
    #[test]
    fn critical_path_stays_on_main_stream() {
        let mut p = Program::new();
        let (a, b) = (input(&mut p, "a", SMALL), input(&mut p, "b", SMALL));
        chain(&mut p, a, 3);
        chain(&mut p, b, 3);
        assert_eq!(streams(&p), [MAIN; 6]);
    }

    /// Large outputs would stay in memory longer on the concurrent stream.
    #[test]
    fn large_outputs_stay_on_main_stream() {
        let mut p = Program::new();
        let (a, b) = (input(&mut p, "a", LARGE), input(&mut p, "b", LARGE));
        chain(&mut p, a, 9);
        chain(&mut p, b, 1);
        assert_eq!(streams(&p), [MAIN; 10]);
    }

    /// A small node whose result the main stream reads next would delay the main stream.
    #[test]
    fn producer_for_next_main_stream_node_stays_on_main_stream() {
        let mut p = Program::new();
        let (large, small) = (input(&mut p, "large", LARGE), input(&mut p, "small", SMALL));
        let before = chain(&mut p, large, 1);
        let early = chain(&mut p, small, 1);
        let late = chain(&mut p, early, 4);
        // On the main stream a small node reads `late`; large nodes follow.
        p.apply1(ReluMask, [late, late]).expect("two of a shape");
        chain(&mut p, before, 6);
        let own = streams(&p);
        assert_eq!(own[0], MAIN);
        let us = vec![3.0; own.len()];
        let mut forced = vec![MAIN; own.len()];
        forced[1] = BESIDE;
        return_late(&p, &us, &mut forced);
        assert_eq!(forced[1], BESIDE, "the main stream has another node meanwhile");
        forced[5] = BESIDE;
        return_late(&p, &us, &mut forced);
        assert_eq!((forced[1], forced[5]), (BESIDE, MAIN), "node 6 reads it next");
    }

    /// Before the main stream waits for a concurrent node that reads a large tensor, it runs all of
    /// its own nodes that read this tensor.
    #[test]
    fn side_stream_does_not_extend_large_tensor_lifetimes() {
        let mut p = Program::new();
        let large = input(&mut p, "large", LARGE);
        let made = chain(&mut p, large, 1);
        chain(&mut p, made, 1);
        chain(&mut p, made, 1);
        chain(&mut p, large, 1);
        let waits = readers_to_wait_for(&p, &Gpu::a100(), &[MAIN, BESIDE, MAIN, MAIN]);
        assert_eq!(waits, [vec![], vec![], vec![], vec![1]]);
    }
}
