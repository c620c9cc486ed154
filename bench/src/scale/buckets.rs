//! Which gradients are reduced together: in the order in which they become ready, a bucket is full
//! when its bytes reach the limit.

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

/// Buckets of `grads`, each of at least `limit_bytes` on the wire but for the last.
pub(super) fn partition(program: &Program, grads: &[TensorId], limit_bytes: usize) -> Vec<Bucket> {
    let producer = |grad: &TensorId| {
        program.nodes().iter().rposition(|node| node.outputs.contains(grad)).unwrap_or(0)
    };
    let mut ready: Vec<(usize, TensorId)> = grads.iter().map(|g| (producer(g), *g)).collect();
    ready.sort_unstable();
    let mut buckets: Vec<Bucket> = Vec::new();
    for (node, grad) in ready {
        let bytes = program.desc(grad).len() * VALUE_BYTES;
        match buckets.last_mut().filter(|bucket| bucket.bytes < limit_bytes) {
            Some(open) => {
                open.grads.push(grad);
                open.bytes += bytes;
                open.last_node = node;
            }
            None => buckets.push(Bucket { grads: vec![grad], bytes, last_node: node }),
        }
    }
    buckets
}
