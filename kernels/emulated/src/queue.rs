//! Streams as queues, and the choice of what runs next.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use crate::capture::Graph;
use crate::command::Command;

/// Number of a piece of work, in submission order.
pub(crate) type Ticket = u64;

#[derive(Debug)]
pub(crate) enum Item {
    Run(Command),
    /// Continues once this ticket is done.
    Wait(Ticket),
    Replay(Arc<Graph>),
}

/// The scheduler's choice: one command to run now.
#[derive(Debug)]
pub(crate) enum Next {
    Command(Command),
    /// Nothing is left anywhere.
    Nothing,
    /// Work remains, but none of it can run.
    Stuck,
}

/// Work of all streams.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    streams: Vec<Stream>,
    outstanding: BTreeSet<Ticket>,
    next_ticket: Ticket,
}

#[derive(Debug, Default)]
struct Stream {
    items: VecDeque<(Ticket, Item)>,
    last: Option<Ticket>,
    /// A graph in execution at the head of the queue: which nodes are done.
    running: Option<Vec<bool>>,
    freed: bool,
}

impl Queues {
    pub(crate) fn add_stream(&mut self) -> usize {
        self.streams.push(Stream::default());
        self.streams.len() - 1
    }

    pub(crate) fn is_alive(&self, stream: usize) -> bool {
        self.streams.get(stream).is_some_and(|stream| !stream.freed)
    }

    pub(crate) fn alive(&self) -> usize {
        self.streams.iter().filter(|stream| !stream.freed).count()
    }

    /// Gives up a stream, whose work still runs.
    pub(crate) fn free(&mut self, stream: usize) {
        self.streams[stream].freed = true;
    }

    pub(crate) fn push(&mut self, stream: usize, item: Item) {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.outstanding.insert(ticket);
        let stream = &mut self.streams[stream];
        stream.items.push_back((ticket, item));
        stream.last = Some(ticket);
    }

    /// The newest work of a stream, for an event to record.
    pub(crate) fn last(&self, stream: usize) -> Option<Ticket> {
        self.streams[stream].last
    }

    /// Takes one command that may run now; `pick(n)` chooses among n.
    pub(crate) fn next(&mut self, pick: &mut dyn FnMut(usize) -> usize) -> Next {
        self.skip_markers();
        if self.outstanding.is_empty() {
            return Next::Nothing;
        }
        let mut ready: Vec<(usize, Option<usize>)> = Vec::new();
        for (s, stream) in self.streams.iter().enumerate() {
            match stream.items.front() {
                Some((_, Item::Run(_))) => ready.push((s, None)),
                Some((_, Item::Replay(graph))) => {
                    let done = stream.running.as_deref().unwrap_or(&[]);
                    ready.extend(graph.ready(done).into_iter().map(|node| (s, Some(node))));
                }
                _ => {}
            }
        }
        if ready.is_empty() {
            return Next::Stuck;
        }
        let (s, node) = ready[pick(ready.len())];
        Next::Command(self.take(s, node))
    }

    /// Removes the chosen command; a graph leaves its queue with its last node.
    fn take(&mut self, s: usize, node: Option<usize>) -> Command {
        let stream = &mut self.streams[s];
        let command = match (stream.items.front(), node) {
            (Some((_, Item::Replay(graph))), Some(node)) => {
                let done = stream.running.get_or_insert_with(|| vec![false; graph.len()]);
                done[node] = true;
                let command = graph.command(node).clone();
                if done.contains(&false) {
                    return command;
                }
                command
            }
            (Some((_, Item::Run(command))), None) => command.clone(),
            other => unreachable!("not ready: {other:?}"),
        };
        self.finish(s);
        command
    }

    fn finish(&mut self, s: usize) {
        let stream = &mut self.streams[s];
        stream.running = None;
        if let Some((ticket, _)) = stream.items.pop_front() {
            self.outstanding.remove(&ticket);
        }
    }

    /// Removes satisfied waits, and empty graphs, from the heads of the queues.
    fn skip_markers(&mut self) {
        loop {
            let passed = self.streams.iter().position(|stream| match stream.items.front() {
                Some((_, Item::Wait(ticket))) => !self.outstanding.contains(ticket),
                Some((_, Item::Replay(graph))) => graph.len() == 0,
                _ => false,
            });
            match passed {
                Some(s) => self.finish(s),
                None => return,
            }
        }
    }
}
