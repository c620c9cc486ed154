//! Schedule: the stream of each node, the launch order, and the waits between nodes.

use device::{Gpu, Target};

use crate::streams::{self, MAIN, WEIGHT_GRADIENTS};
use crate::{GraphError, NodeId, Program, TensorId};

/// Number of weight gradients that the main stream may run ahead of.
const MAX_AHEAD: usize = 2;

/// An execution order: nodes in launch order, each on a stream, with the waits between streams.
#[derive(Debug, Clone)]
pub struct Schedule {
    launches: Vec<Launch>,
    /// Bit `b` of `before[a]` is set if launch `b` finishes before launch `a` starts, in every
    /// allowed order.
    before: Vec<BitSet>,
}

/// One node in launch order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The node.
    pub node: NodeId,
    /// Its stream; a stream runs its launches in order.
    pub stream: usize,
    /// Earlier launches (positions) on other streams that it waits for.
    pub waits: Vec<usize>,
}

impl Schedule {
    /// The schedule of a target: one stream on the CPU, [`Self::gpu_streams`] on a GPU.
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

    /// Nodes in program order, node `i` on stream `streams[i]`, with the waits that the tensors
    /// require.
    ///
    /// # Errors
    /// [`GraphError::UnorderedUpdate`] if state is read after its update, or updated twice.
    pub fn with_streams(program: &Program, streams: &[usize]) -> Result<Self, GraphError> {
        assert_eq!(streams.len(), program.nodes().len());
        Self::build(program, streams, &vec![vec![]; streams.len()])
    }

    /// Node `i` on stream `streams[i]`, after the nodes `also_after[i]` too.
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
                // A node may neither update one state twice nor read what it updates: the device
                // gives it each update as the only reference.
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
            // Another wait, or stream order, already covers this: no event needed.
            let others: Vec<usize> = waits.iter().copied().chain(last_on_stream[stream]).collect();
            let implied = |w: usize| others.iter().any(|o| before[*o].contains(w));
            waits.retain(|w| streams[*w] != stream && !implied(*w));
            last_on_stream[stream] = Some(i);
            launches.push(Launch { node: NodeId(i as u32), stream, waits });
            before.push(done);
        }
        Ok(Self { launches, before })
    }

    /// Nodes in program order on the streams of [`streams`]: the main one; that of weight
    /// gradients, whose results only the update reads; that of small nodes for which the main one
    /// need not wait; and that of nodes that communicate with other ranks, if there are any.
    ///
    /// The main stream may run ahead of the weight gradients by two nodes: their inputs stay in
    /// memory until they are done. Nodes that communicate wait only for what they read, and for one
    /// another: every rank runs them in the order of the program.
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

    /// Number of streams: one more than the highest that a launch is on.
    pub fn num_streams(&self) -> usize {
        self.launches.iter().map(|launch| launch.stream + 1).max().unwrap_or(1)
    }

    /// True if launch `first` finishes before launch `second` starts in every allowed order.
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
