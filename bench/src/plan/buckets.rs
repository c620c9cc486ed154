//! Which gradients are reduced together.

use graph::{Program, TensorId};

/// Bytes of a gradient value on the wire: half precision.
pub(super) const VALUE_BYTES: usize = 2;

/// Gradients that one all-reduce sums.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bucket {
    pub(super) grads: Vec<TensorId>,
    /// On the wire.
    pub(super) bytes: usize,
    /// The node, by position, that makes the last of them.
    pub(super) last_node: usize,
}

/// The gradients of a training step: what its node `grad_norms` reads.
pub(super) fn gradients(program: &Program) -> Vec<TensorId> {
    let norms = program.nodes().iter().find(|node| node.op.name() == "grad_norms");
    norms.map(|node| node.inputs.clone()).unwrap_or_default()
}

/// Buckets of `grads`, as a training step of several ranks has them.
pub(super) fn partition(program: &Program, grads: &[TensorId], limit_bytes: usize) -> Vec<Bucket> {
    let producer = |grad: &TensorId| {
        program.nodes().iter().rposition(|node| node.outputs.contains(grad)).unwrap_or(0)
    };
    let mut ready: Vec<(usize, TensorId)> = grads.iter().map(|g| (producer(g), *g)).collect();
    ready.sort_unstable();
    let bytes: Vec<usize> =
        ready.iter().map(|(_, grad)| program.desc(*grad).len() * VALUE_BYTES).collect();
    let bucket = |range: std::ops::Range<usize>| Bucket {
        bytes: bytes[range.clone()].iter().sum(),
        last_node: ready[range.end - 1].0,
        grads: ready[range].iter().map(|(_, grad)| *grad).collect(),
    };
    graph::buckets::partition(&bytes, limit_bytes).into_iter().map(bucket).collect()
}
