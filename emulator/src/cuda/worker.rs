//! Executes the work in a context's streams, in an order determined by the seed.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::graph::Run;
use super::report;
use super::settings::{Schedule, Settings};
use super::state::{Context, Step, Stream, changed, lock};
use super::work::{Broken, Handle, Work};
use crate::memory::Memory;
use crate::random::Random;

/// Maximum time that work waits in the late schedule.
const MAX_LATE: Duration = Duration::from_millis(1);
/// On average one in this many scheduling decisions delays a stream.
const STARVES: usize = 64;
/// Maximum delay of a stream in microseconds.
const MAX_STARVED: usize = 2000;
/// On average one in this many scheduling decisions yields to other threads.
const YIELDS: usize = 16;
/// Maximum duration of a yield in microseconds.
const MAX_YIELD: usize = 100;

/// Work that may begin: the first item of a stream, or a node of the graph that is the first item.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    stream: Handle,
    node: Option<usize>,
    /// The sequence numbers of this item and of the newest item in its stream.
    first: u64,
    newest: u64,
}

enum Choice {
    Begin(Candidate),
    /// Releases the lock for this time.
    Yield(Duration),
    /// Waits for a change of the state, at most for this time.
    Rest(Option<Duration>),
}

/// Starts the worker of a context.
pub(super) fn start(context: &Context) {
    let (handle, memory) = (context.handle, context.memory.clone());
    let settings = context.gpu.settings;
    thread::spawn(move || work(handle, &memory, settings));
}

fn work(handle: Handle, memory: &Arc<Memory>, settings: &'static Settings) {
    let random = &mut Random::new(settings.seed);
    let mut state = lock();
    while let Some(context) = state.contexts.get_mut(&handle) {
        match choose(context, random) {
            Choice::Rest(limit) => state = state.wait(limit),
            Choice::Yield(time) => {
                drop(state);
                thread::sleep(time);
                state = lock();
            }
            Choice::Begin(candidate) => {
                let Some(work) = begin(context, candidate) else {
                    end(context, candidate, Ok(()));
                    continue;
                };
                drop(state);
                let seed = random.next();
                if matches!(*work, Work::External(_)) {
                    // External work may wait for another process, so it runs on a separate thread,
                    // and other streams continue.
                    let memory = memory.clone();
                    let run = move || execute(handle, &work, candidate, &memory, (seed, settings));
                    thread::spawn(run);
                } else {
                    execute(handle, &work, candidate, memory, (seed, settings));
                }
                state = lock();
            }
        }
    }
}

fn execute(
    context: Handle,
    work: &Work,
    candidate: Candidate,
    memory: &Memory,
    (seed, settings): (u64, &Settings),
) {
    let done = work.execute(memory, seed, settings);
    if let Some(context) = lock().contexts.get_mut(&context) {
        end(context, candidate, done);
    }
}

/// Selects the work that begins next.
fn choose(context: &mut Context, random: &mut Random) -> Choice {
    let now = Instant::now();
    let schedule = context.gpu.settings.schedule;
    let is_late = schedule == Schedule::Late && context.waiting == 0;
    let (mut candidates, mut rest) = (vec![], None::<Duration>);
    for (handle, stream) in &mut context.streams {
        let Some(item) = stream.queue.front() else { continue };
        let held = if is_late { Some(item.at + MAX_LATE) } else { stream.starved };
        if let Some(left) = held.and_then(|until| until.checked_duration_since(now))
            && !left.is_zero()
        {
            rest = Some(rest.map_or(left, |rest| rest.min(left)));
            continue;
        }
        stream.starved = None;
        stream.candidates(*handle, &mut candidates);
    }
    if candidates.is_empty() {
        return Choice::Rest(rest);
    }
    Choice::Begin(match schedule {
        Schedule::Eager => candidates.swap_remove(extreme(&candidates, |c| (c.first, c.node))),
        Schedule::Late => {
            let key = |c: &Candidate| (u64::MAX - c.newest, c.node.map(|node| usize::MAX - node));
            candidates.swap_remove(extreme(&candidates, key))
        }
        Schedule::Random => {
            let chosen = candidates.swap_remove(random.below(candidates.len()));
            if random.once_in(STARVES)
                && let Some(stream) = context.streams.get_mut(&chosen.stream)
            {
                stream.starved = Some(now + micros(random.below(MAX_STARVED)));
                return Choice::Yield(Duration::ZERO);
            }
            if random.once_in(YIELDS) {
                return Choice::Yield(micros(random.below(MAX_YIELD)));
            }
            chosen
        }
    })
}

fn micros(count: usize) -> Duration {
    Duration::from_micros(count as u64)
}

/// Index of the minimum of a non-empty list.
fn extreme<K: Ord>(list: &[Candidate], key: impl Fn(&Candidate) -> K) -> usize {
    (0..list.len()).min_by_key(|place| key(&list[*place])).unwrap_or(0)
}

impl Stream {
    /// Appends to `list` the work of the stream that may begin.
    fn candidates(&self, stream: Handle, list: &mut Vec<Candidate>) {
        let (Some(item), Some(newest)) = (self.queue.front(), self.queue.back()) else { return };
        let (first, newest) = (item.order, newest.order);
        if let Some(run) = &self.run {
            let node = |node: &usize| Candidate { stream, node: Some(*node), first, newest };
            list.extend(run.ready.iter().map(node));
            return;
        }
        let may_begin = match &item.step {
            Step::Wait(mark) => mark.is_done(),
            Step::Graph { earlier, .. } => earlier.as_ref().is_none_or(|mark| mark.is_done()),
            Step::Do(_) | Step::Record(_) => true,
        };
        if may_begin && !self.is_busy {
            list.push(Candidate { stream, node: None, first, newest });
        }
    }
}

/// Begins the selected item; `None` if it has nothing to execute.
fn begin(context: &mut Context, candidate: Candidate) -> Option<Arc<Work>> {
    let stream = context.streams.get_mut(&candidate.stream)?;
    if let Some(node) = candidate.node {
        return stream.run.as_mut().map(|run| run.begin(node));
    }
    stream.is_busy = true;
    match &stream.queue.front()?.step {
        Step::Do(work) => Some(work.clone()),
        Step::Graph { nodes, .. } => {
            stream.run = Some(Run::new(nodes));
            None
        }
        Step::Record(_) | Step::Wait(_) => None,
    }
}

/// Updates the context at the end of an item.
fn end(context: &mut Context, candidate: Candidate, done: Result<(), Broken>) {
    changed();
    if context.failed.is_some() {
        return;
    }
    if let Err(broken) = done {
        if let Some(sentence) = &broken.sentence {
            report::fault(broken.code, sentence);
        }
        context.why = broken.sentence;
        context.fail(broken.code);
        return;
    }
    let Some(stream) = context.streams.get_mut(&candidate.stream) else { return };
    if let Some(run) = &mut stream.run {
        if let Some(node) = candidate.node {
            run.end(node);
        }
        if !run.is_done() {
            return;
        }
        stream.run = None;
    }
    stream.is_busy = false;
    if let Some(Step::Record(mark) | Step::Graph { end: mark, .. }) =
        stream.queue.pop_front().map(|item| item.step)
    {
        mark.reach();
    }
    if stream.is_destroyed && stream.queue.is_empty() {
        context.streams.remove(&candidate.stream);
    }
}
