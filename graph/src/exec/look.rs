//! The data that an observer of a run gets for a node.

use kernels::cpu::HostTensor;

use crate::{NodeId, Program};

/// The inputs and outputs of a node, floats widened to f32.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The node.
    pub node: NodeId,
    /// Its inputs.
    pub inputs: Vec<HostTensor>,
    /// The state that it updates, before the update.
    pub before: Vec<HostTensor>,
    /// Its outputs.
    pub outputs: Vec<HostTensor>,
    /// The state that it updates, after the update.
    pub after: Vec<HostTensor>,
}

/// An observer of nodes.
pub trait Look {
    /// Called before a node runs. True if its tensors are wanted.
    fn wants(&mut self, program: &Program, node: NodeId) -> bool;

    /// Called after a wanted node has run.
    fn see(&mut self, program: &Program, seen: Seen);
}
