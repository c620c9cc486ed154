//! Capture: launches and their order as data, and the proof that no two of them race.

use std::collections::{HashMap, HashSet};

use device::{Access, DeviceError, Task, Touch};

use crate::command::Command;

/// A captured graph.
#[derive(Debug)]
pub(crate) struct Graph {
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    command: Command,
    after: Vec<usize>,
}

impl Graph {
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn command(&self, node: usize) -> &Command {
        &self.nodes[node].command
    }

    /// Nodes that may run once those of `done` are done (if `done` is empty: the roots).
    pub(crate) fn ready(&self, done: &[bool]) -> Vec<usize> {
        let is_done = |i: usize| done.get(i).copied().unwrap_or(false);
        let can = |i: &usize| !is_done(*i) && self.nodes[*i].after.iter().all(|a| is_done(*a));
        (0..self.nodes.len()).filter(can).collect()
    }
}

/// A capture in progress.
#[derive(Debug)]
pub(crate) struct Capture {
    origin: usize,
    nodes: Vec<Node>,
    /// The predecessors of the next node, per captured stream.
    heads: HashMap<usize, Vec<usize>>,
    /// The work that events recorded in the capture mark.
    events: HashMap<u32, Vec<usize>>,
}

impl Capture {
    pub(crate) fn new(origin: usize) -> Self {
        let heads = HashMap::from([(origin, vec![])]);
        Self { origin, nodes: vec![], heads, events: HashMap::new() }
    }

    pub(crate) fn origin(&self) -> usize {
        self.origin
    }

    pub(crate) fn holds(&self, stream: usize) -> bool {
        self.heads.contains_key(&stream)
    }

    pub(crate) fn holds_event(&self, event: u32) -> bool {
        self.events.contains_key(&event)
    }

    pub(crate) fn push(&mut self, stream: usize, command: Command) {
        let after =
            std::mem::replace(self.heads.entry(stream).or_default(), vec![self.nodes.len()]);
        self.nodes.push(Node { command, after });
    }

    pub(crate) fn record(&mut self, event: u32, stream: usize) {
        self.events.insert(event, self.heads[&stream].clone());
    }

    /// From now on the event marks work outside the capture.
    pub(crate) fn forget(&mut self, event: u32) {
        self.events.remove(&event);
    }

    /// The stream joins the capture (or its later work waits) after the event.
    pub(crate) fn wait(&mut self, stream: usize, event: u32) {
        let marked = self.events[&event].clone();
        let head = self.heads.entry(stream).or_default();
        head.extend(marked);
        head.sort_unstable();
        head.dedup();
    }

    /// The graph, if every stream has rejoined the first and no two nodes race.
    pub(crate) fn finish(mut self) -> Result<Graph, DeviceError> {
        let before = ancestors(&self.nodes);
        let ends = self.heads.remove(&self.origin).unwrap_or_default();
        for (stream, head) in &self.heads {
            let joined =
                |h: &usize| ends.contains(h) || ends.iter().any(|e| before[*e].contains(h));
            if !head.iter().all(joined) {
                return Err(DeviceError::Driver {
                    call: "end_capture".into(),
                    reason: format!(
                        "stream {stream} has work that stream {} does not wait for",
                        self.origin
                    ),
                });
            }
        }
        for (second, done) in before.iter().enumerate() {
            for first in 0..second {
                let ordered = done.contains(&first);
                if let (false, Some(bytes)) = (ordered, self.race(first, second)) {
                    return Err(self.racing(first, second, bytes));
                }
                let sums =
                    is_sum(&self.nodes[first].command) && is_sum(&self.nodes[second].command);
                if !ordered && sums {
                    let reason = format!(
                        "the sums over ranks of nodes {first} and {second} have no order: two \
                         ranks could make them in different ones"
                    );
                    return Err(DeviceError::Driver { call: "end_capture".into(), reason });
                }
            }
        }
        Ok(Graph { nodes: self.nodes })
    }

    /// Bytes that both nodes access and one writes.
    fn race(&self, first: usize, second: usize) -> Option<usize> {
        let (a, b) = (touches(&self.nodes[first].command), touches(&self.nodes[second].command));
        let shared = |x: &Touch, y: &Touch| {
            let end = (x.ptr + x.bytes as u64).min(y.ptr + y.bytes as u64);
            end.saturating_sub(x.ptr.max(y.ptr)) as usize
        };
        let pairs = a.iter().flat_map(|x| b.iter().map(move |y| (x, y)));
        let writing = pairs.filter(|(x, y)| x.access.writes() || y.access.writes());
        writing.map(|(x, y)| shared(x, y)).find(|bytes| *bytes > 0)
    }

    fn racing(&self, first: usize, second: usize, bytes: usize) -> DeviceError {
        let name = |i: usize| match &self.nodes[i].command {
            Command::Task(Task::Launch(launch)) => format!("`{}` (node {i})", launch.kernel),
            Command::Task(task) => format!("a task `{}` (node {i})", task.name()),
            Command::UploadFrom { .. } => format!("a copy (node {i})"),
            Command::Stamp(_) => format!("a timing event (node {i})"),
        };
        DeviceError::Driver {
            call: "end_capture".into(),
            reason: format!(
                "{} and {} reach the same {bytes} bytes, one writes them, and no event orders them",
                name(first),
                name(second)
            ),
        }
    }
}

/// Per node, all nodes that finish before it starts.
fn ancestors(nodes: &[Node]) -> Vec<HashSet<usize>> {
    let mut before: Vec<HashSet<usize>> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let mut all = HashSet::new();
        for &a in &node.after {
            all.insert(a);
            all.extend(&before[a]);
        }
        before.push(all);
    }
    before
}

fn touches(command: &Command) -> Vec<Touch> {
    match command {
        Command::Task(task) => task.touches(),
        Command::UploadFrom { to, copy } => {
            vec![Touch { ptr: *to, bytes: copy.bytes().len(), access: Access::Write }]
        }
        Command::Stamp(_) => vec![],
    }
}

fn is_sum(command: &Command) -> bool {
    matches!(command, Command::Task(Task::AllReduce(_)))
}
