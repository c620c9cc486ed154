//! Observation of a run: the observer gets the tensors of the nodes that it requests.

use kernels::cpu::HostTensor;

use crate::{NodeId, Program};

/// The inputs and outputs of a node, with floats widened to f32.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The node.
    pub node: NodeId,
    /// Inputs of the node.
    pub inputs: Vec<HostTensor>,
    /// The state that the node updates, before the update.
    pub before: Vec<HostTensor>,
    /// Outputs of the node.
    pub outputs: Vec<HostTensor>,
    /// The state that the node updates, after the update.
    pub after: Vec<HostTensor>,
}

/// An observer of nodes.
pub trait Look {
    /// Called before a node runs; returns true to request its tensors.
    fn wants(&mut self, program: &Program, node: NodeId) -> bool;

    /// Called after a requested node has run.
    fn see(&mut self, program: &Program, seen: Seen);
}
