//! Captured work: what a capture collects, a graph, and one execution of it.

use std::sync::Arc;
use std::thread::ThreadId;

use super::work::{Handle, Mark, Work};

/// One operation, and those before it.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) work: Arc<Work>,
    /// Numbers of nodes that end before this one begins.
    pub(super) after: Vec<usize>,
}

/// A capture that has begun.
#[derive(Debug)]
pub(super) struct Capture {
    /// The stream on which it began.
    pub(super) origin: Handle,
    /// The thread that began it.
    pub(super) thread: ThreadId,
    /// Set by a violation of the rules.
    pub(super) is_invalid: bool,
    pub(super) nodes: Vec<Node>,
}

impl Capture {
    /// Adds an operation; its number.
    pub(super) fn add(&mut self, work: Work, after: Vec<usize>) -> usize {
        self.nodes.push(Node { work: Arc::new(work), after });
        self.nodes.len() - 1
    }

    /// How many nodes do not end before the last ones of `tail`, nor are among these.
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

/// A graph that can be launched.
#[derive(Debug)]
pub(super) struct Exec {
    pub(super) nodes: Arc<Vec<Node>>,
    /// The end of the last launch.
    pub(super) last: Option<Arc<Mark>>,
}

/// One execution of a graph.
#[derive(Debug)]
pub(super) struct Run {
    nodes: Arc<Vec<Node>>,
    /// For each node, how many nodes before it have not ended.
    waits: Vec<usize>,
    /// Nodes that may begin, in no order.
    pub(super) ready: Vec<usize>,
    left: usize,
}

impl Run {
    /// An execution of which nothing has begun.
    pub(super) fn new(nodes: &Arc<Vec<Node>>) -> Self {
        let waits: Vec<usize> = nodes.iter().map(|node| node.after.len()).collect();
        let ready = (0..nodes.len()).filter(|node| waits[*node] == 0).collect();
        Self { nodes: nodes.clone(), waits, ready, left: nodes.len() }
    }

    /// Takes a ready node out, to execute it.
    pub(super) fn begin(&mut self, node: usize) -> Arc<Work> {
        self.ready.retain(|ready| *ready != node);
        self.nodes[node].work.clone()
    }

    /// A node has ended.
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
