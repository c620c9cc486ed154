//! Captured work: a capture and its nodes, executable graphs, and their executions.

use std::sync::Arc;
use std::thread::ThreadId;

use super::work::{Handle, Mark, Work};

/// One operation, and its dependencies.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) work: Arc<Work>,
    /// Nodes that must end before this node begins.
    pub(super) after: Vec<usize>,
}

/// A capture in progress.
#[derive(Debug)]
pub(super) struct Capture {
    /// The stream on which the capture began.
    pub(super) origin: Handle,
    /// The thread that began the capture.
    pub(super) thread: ThreadId,
    /// Set when a call violates a rule of stream capture.
    pub(super) is_invalid: bool,
    pub(super) nodes: Vec<Node>,
}

impl Capture {
    /// Adds an operation as a node; returns the node's index.
    pub(super) fn add(&mut self, work: Work, after: Vec<usize>) -> usize {
        self.nodes.push(Node { work: Arc::new(work), after });
        self.nodes.len() - 1
    }

    /// Number of nodes that are neither in `tail` nor predecessors of a node in `tail`.
    pub(super) fn unjoined(&self, tail: &[usize]) -> usize {
        let mut is_joined = vec![false; self.nodes.len()];
        let mut open = tail.to_vec();
        while let Some(node) = open.pop() {
            if !std::mem::replace(&mut is_joined[node], true) {
                open.extend(&self.nodes[node].after);
            }
        }
        is_joined.iter().filter(|joined| !**joined).count()
    }
}

/// An executable graph.
#[derive(Debug)]
pub(super) struct Exec {
    pub(super) nodes: Arc<Vec<Node>>,
    /// The mark that the last launch reaches at its end.
    pub(super) last: Option<Arc<Mark>>,
}

/// One execution of a graph.
#[derive(Debug)]
pub(super) struct Run {
    nodes: Arc<Vec<Node>>,
    /// For each node, the number of dependencies that have not ended.
    waits: Vec<usize>,
    /// Nodes that may begin, in any order.
    pub(super) ready: Vec<usize>,
    left: usize,
}

impl Run {
    /// An execution before its first node.
    pub(super) fn new(nodes: &Arc<Vec<Node>>) -> Self {
        let waits: Vec<usize> = nodes.iter().map(|node| node.after.len()).collect();
        let ready = (0..nodes.len()).filter(|node| waits[*node] == 0).collect();
        Self { nodes: nodes.clone(), waits, ready, left: nodes.len() }
    }

    /// Removes a ready node, to execute it.
    pub(super) fn begin(&mut self, node: usize) -> Arc<Work> {
        self.ready.retain(|ready| *ready != node);
        self.nodes[node].work.clone()
    }

    /// Notes that a node has ended.
    pub(super) fn end(&mut self, node: usize) {
        self.left -= 1;
        for (later, waits) in self.waits.iter_mut().enumerate().skip(node + 1) {
            let waited = self.nodes[later].after.iter().filter(|before| **before == node).count();
            if waited > 0 {
                *waits -= waited;
                if *waits == 0 {
                    self.ready.push(later);
                }
            }
        }
    }

    /// True if all nodes have ended.
    pub(super) fn is_done(&self) -> bool {
        self.left == 0
    }
}
