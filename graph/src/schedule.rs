//! Schedule: the stream of each node, the launch order, and the waits between nodes.

use device::{Gpu, Target};

use crate::streams::{self, MAIN, WEIGHT_GRADIENTS};
use crate::{GraphError, NodeId, Program, TensorId};

/// Maximum number of weight gradients by which the main stream may be ahead of the weight-gradient
/// stream.
const MAX_AHEAD: usize = 2;

/// An execution order: nodes in launch order, each on a stream, with the waits between streams.
#[derive(Debug, Clone)]
pub struct Schedule {
    launches: Vec<Launch>,
    /// Bit `b` of `before[a]` is set if, in every allowed order, launch `b` ends before launch `a`
    /// starts.
    before: Vec<BitSet>,
}

/// One node in launch order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The node.
    pub node: NodeId,
    /// Stream of the launch; a stream runs its launches in order.
    pub stream: usize,
    /// Positions of earlier launches on other streams for which this launch waits.
    pub waits: Vec<usize>,
}

impl Schedule {
    /// The schedule for a target: [`Self::single_stream`] on the CPU, [`Self::gpu_streams`] on a
    /// GPU.
    ///
    /// # Errors
    /// [`GraphError::UnorderedUpdate`] if state is read after its update, or updated twice.
    pub fn new(program: &Program, target: &Target) -> Result<Self, GraphError> {
        match target {
            Target::Cpu => Self::single_stream(program),
            Target::Gpu(gpu) => Self::gpu_streams(program, gpu),
        }
    }

    /// All nodes in program order on one stream.
    ///
    /// # Errors
    /// [`GraphError::UnorderedUpdate`] if state is read after its update, or updated twice.
    pub fn single_stream(program: &Program) -> Result<Self, GraphError> {
        let streams = vec![0; program.nodes().len()];
        Self::with_streams(program, &streams)
    }

    /// Nodes in program order, node `i` on stream `streams[i]`, with the waits that their tensors
    /// require.
    ///
    /// # Errors
    /// [`GraphError::UnorderedUpdate`] if state is read after its update, or updated twice.
    pub fn with_streams(program: &Program, streams: &[usize]) -> Result<Self, GraphError> {
        assert_eq!(streams.len(), program.nodes().len());
        Self::build(program, streams, &vec![vec![]; streams.len()])
    }

    /// Node `i` on stream `streams[i]`; it additionally waits for the nodes `also_after[i]`.
    fn build(
        program: &Program,
        streams: &[usize],
        also_after: &[Vec<usize>],
    ) -> Result<Self, GraphError> {
        let n = program.nodes().len();
        let mut producer: Vec<Option<usize>> = vec![None; program.tensors().len()];
        let mut readers: Vec<Vec<usize>> = vec![Vec::new(); program.tensors().len()];
        let mut launches = Vec::with_capacity(n);
        let mut before: Vec<BitSet> = Vec::with_capacity(n);
        let mut last_on_stream: Vec<Option<usize>> = Vec::new();
        for (i, node) in program.nodes().iter().enumerate() {
            let mut waits: Vec<usize> =
                node.inputs.iter().filter_map(|t| producer[t.index()]).collect();
            waits.extend(&also_after[i]);
            for (k, t) in node.updates.iter().enumerate() {
                // A node may neither update the same state twice nor read the state that it
                // updates, because an op gets each updated tensor as an exclusive reference.
                let itself = node.inputs.contains(t) || node.updates[..k].contains(t);
                if let Some(writer) = producer[t.index()].or(itself.then_some(i)) {
                    return Err(unordered(program, *t, i, writer));
                }
                waits.extend(&readers[t.index()]);
            }
            for t in &node.inputs {
                let written =
                    producer[t.index()].filter(|w| program.nodes()[*w].updates.contains(t));
                if let Some(writer) = written {
                    return Err(unordered(program, *t, i, writer));
                }
                readers[t.index()].push(i);
            }
            for t in node.outputs.iter().chain(&node.updates) {
                producer[t.index()] = Some(i);
            }
            let stream = streams[i];
            if last_on_stream.len() <= stream {
                last_on_stream.resize(stream + 1, None);
            }
            let mut done = BitSet::new(n);
            for b in waits.iter().copied().chain(last_on_stream[stream]) {
                done.insert(b);
                done.union(&before[b]);
            }
            waits.sort_unstable();
            waits.dedup();
            // A wait that is implied by stream order or by another wait needs no event.
            let others: Vec<usize> = waits.iter().copied().chain(last_on_stream[stream]).collect();
            let implied = |w: usize| others.iter().any(|o| before[*o].contains(w));
            waits.retain(|w| streams[*w] != stream && !implied(*w));
            last_on_stream[stream] = Some(i);
            launches.push(Launch { node: NodeId(i as u32), stream, waits });
            before.push(done);
        }
        Ok(Self { launches, before })
    }

    /// Nodes in program order on up to four streams ([`streams`]): the main stream; one for weight
    /// gradients, which only the update reads; one for small nodes that do not delay the main
    /// stream; and one for nodes that communicate with other ranks.
    ///
    /// The main stream may be ahead of the weight gradients by at most two of them, because their
    /// inputs stay in memory until they are done. Communicating nodes wait only for the nodes that
    /// write their inputs and for each other, so every rank runs them in program order.
    ///
    /// # Errors
    /// [`GraphError::UnorderedUpdate`] if state is read after its update, or updated twice.
    pub fn gpu_streams(program: &Program, gpu: &Gpu) -> Result<Self, GraphError> {
        let streams = streams::on_gpu(program, gpu);
        let mut after = streams::readers_to_wait_for(program, gpu, &streams);
        let mut started = Vec::new();
        for (i, stream) in streams.iter().enumerate() {
            match *stream {
                MAIN => after[i].extend(started.iter().rev().nth(MAX_AHEAD)),
                WEIGHT_GRADIENTS => started.push(i),
                _ => {}
            }
        }
        Self::build(program, &streams, &after)
    }

    /// Nodes in launch order.
    pub fn launches(&self) -> &[Launch] {
        &self.launches
    }

    /// Number of streams: the highest stream index plus one.
    pub fn num_streams(&self) -> usize {
        self.launches.iter().map(|launch| launch.stream + 1).max().unwrap_or(1)
    }

    /// True if, in every allowed order, launch `first` ends before launch `second` starts.
    pub fn happens_before(&self, first: usize, second: usize) -> bool {
        self.before[second].contains(first)
    }
}

fn unordered(program: &Program, tensor: TensorId, reader: usize, writer: usize) -> GraphError {
    GraphError::UnorderedUpdate {
        tensor: program.tensors()[tensor.index()].name.clone(),
        reader: program.node_name(NodeId(reader as u32)),
        writer: program.node_name(NodeId(writer as u32)),
    }
}

/// A set of small integers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BitSet(Vec<u64>);

impl BitSet {
    pub(crate) fn new(len: usize) -> Self {
        Self(vec![0; len.div_ceil(64)])
    }

    pub(crate) fn insert(&mut self, i: usize) {
        self.0[i / 64] |= 1 << (i % 64);
    }

    pub(crate) fn contains(&self, i: usize) -> bool {
        self.0[i / 64] >> (i % 64) & 1 == 1
    }

    fn union(&mut self, other: &Self) {
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a |= b;
        }
    }
}
