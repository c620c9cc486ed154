//! All state visible to the host: contexts, and the objects in them.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::errors::*;
use super::graph::{Capture, Exec, Node, Run};
use super::models::{Gpu, Model};
use super::work::{Handle, Mark, Work};
use crate::memory::Memory;
use crate::ptx::{Kernel, Module};

/// The first handle. Handles are not valid addresses in a process, so dereferencing a handle
/// crashes.
const FIRST: Handle = 0xd000_0000_0000_0000;
/// Distance between handles, similar to the distance between the addresses of real objects.
const STRIDE: Handle = 16;

static STATE: Mutex<State> = Mutex::new(State { is_initialized: false, contexts: BTreeMap::new() });
static CHANGED: Condvar = Condvar::new();
static NEXT: AtomicU64 = AtomicU64::new(FIRST);

thread_local! {
    /// The context current on this thread, or 0.
    static CURRENT: Cell<Handle> = const { Cell::new(0) };
}

/// The state of the process.
#[derive(Debug)]
pub(super) struct State {
    pub(super) is_initialized: bool,
    pub(super) contexts: BTreeMap<Handle, Context>,
}

/// The primary context of a device.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) handle: Handle,
    /// Number of the device.
    pub(super) device: usize,
    pub(super) gpu: &'static Gpu,
    pub(super) references: usize,
    pub(super) memory: Arc<Memory>,
    /// The error that all later calls return.
    pub(super) failed: Option<i32>,
    /// The cause of the error; `None` if it was injected.
    pub(super) why: Option<String>,
    pub(super) streams: BTreeMap<Handle, Stream>,
    pub(super) events: BTreeMap<Handle, Event>,
    pub(super) modules: BTreeMap<Handle, Module>,
    pub(super) functions: BTreeMap<Handle, Function>,
    pub(super) graphs: BTreeMap<Handle, Arc<Vec<Node>>>,
    pub(super) execs: BTreeMap<Handle, Exec>,
    pub(super) captures: BTreeMap<Handle, Capture>,
    /// Device memory: length by address.
    pub(super) allocations: BTreeMap<u64, usize>,
    /// Pinned memory by its host address.
    pub(super) pinned: BTreeMap<usize, Pinned>,
    /// Number of host threads that wait for work to end.
    pub(super) waiting: usize,
    /// Sequence number of the last enqueued operation.
    pub(super) order: u64,
}

/// Host memory accessible to the device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pinned {
    pub(super) bytes: usize,
    /// Its device address.
    pub(super) device: u64,
}

/// A stream: a queue of work.
#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) priority: i32,
    pub(super) queue: VecDeque<Item>,
    /// The first item of the queue is being executed.
    pub(super) is_busy: bool,
    /// The execution of the graph at the front of the queue.
    pub(super) run: Option<Run>,
    /// No work of the stream begins before this time.
    pub(super) starved: Option<Instant>,
    /// The capture that the stream is part of.
    pub(super) capture: Option<Handle>,
    /// Nodes of the capture that the stream's next node depends on.
    pub(super) tail: Vec<usize>,
    /// The program has destroyed the stream, but its queue is not empty.
    pub(super) is_destroyed: bool,
}

/// An item in the queue of a stream.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) order: u64,
    pub(super) at: Instant,
    pub(super) step: Step,
}

/// The action of a queue item.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Do(Arc<Work>),
    /// Reaches the mark.
    Record(Arc<Mark>),
    /// Begins when the mark is reached.
    Wait(Arc<Mark>),
    /// A graph launch. Begins after mark `earlier`, the end of the previous launch, and reaches
    /// mark `end` at its end.
    Graph {
        nodes: Arc<Vec<Node>>,
        earlier: Option<Arc<Mark>>,
        end: Arc<Mark>,
    },
}

/// An event: a handle for a point in a stream.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) has_time: bool,
    pub(super) point: Point,
}

/// Where an event was last recorded.
#[derive(Debug, Clone)]
pub(super) enum Point {
    Never,
    Stream(Arc<Mark>),
    /// In this capture, after these nodes.
    Capture(Handle, Vec<usize>),
}

/// A kernel of a module.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) module: Handle,
    pub(super) kernel: Arc<Kernel>,
    /// Maximum dynamic shared memory per launch.
    pub(super) dynamic_shared: u32,
}

/// The state, locked.
pub(super) struct Locked(Option<MutexGuard<'static, State>>);

/// A new, unique handle.
pub(super) fn new_handle() -> Handle {
    NEXT.fetch_add(STRIDE, Ordering::SeqCst)
}

/// Locks the state.
pub(super) fn lock() -> Locked {
    Locked(Some(STATE.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// Locks the state if no other thread holds the lock.
pub(super) fn try_lock() -> Option<Locked> {
    STATE.try_lock().ok().map(|guard| Locked(Some(guard)))
}

/// Wakes all threads that wait for a change of the state.
pub(super) fn changed() {
    CHANGED.notify_all();
}

/// Handle of the context current on this thread, or 0.
pub(super) fn current() -> Handle {
    CURRENT.try_with(Cell::get).unwrap_or(0)
}

/// Makes a context current on this thread.
pub(super) fn set_current(context: Handle) {
    // Fails only on a thread that is exiting, which needs no context.
    let _ = CURRENT.try_with(|current| current.set(context));
}

impl Locked {
    /// Waits for a change of the state, with an optional timeout.
    pub(super) fn wait(mut self, limit: Option<Duration>) -> Self {
        if let Some(guard) = self.0.take() {
            self.0 = Some(match limit {
                None => CHANGED.wait(guard).unwrap_or_else(PoisonError::into_inner),
                Some(limit) => {
                    let waited = CHANGED.wait_timeout(guard, limit);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            });
        }
        self
    }

    /// Waits until all work enqueued so far has ended: on `stream`, or on all streams if `None`.
    pub(super) fn finish(mut self, stream: Option<Handle>) -> (Self, Outcome) {
        match self.context() {
            Err(failure) => (self, Err(failure)),
            Ok(context) => {
                let (handle, last) = (context.handle, context.order);
                self.wait_until(handle, |context| context.is_done(stream, last))
            }
        }
    }

    /// Waits until `is_done` holds for a context, or the context has failed or was destroyed.
    pub(super) fn wait_until(
        mut self,
        handle: Handle,
        is_done: impl Fn(&Context) -> bool,
    ) -> (Self, Outcome) {
        loop {
            let Some(context) = self.contexts.get_mut(&handle) else {
                return (self, Err(CONTEXT_IS_DESTROYED.into()));
            };
            let outcome = context.check();
            if outcome.is_err() || is_done(context) {
                return (self, outcome);
            }
            context.waiting += 1;
            changed();
            self = self.wait(None);
            if let Some(context) = self.contexts.get_mut(&handle) {
                context.waiting -= 1;
            }
        }
    }
}

impl Deref for Locked {
    type Target = State;

    fn deref(&self) -> &State {
        // `None` only inside `wait`.
        self.0.as_ref().unwrap_or_else(|| unreachable!())
    }
}

impl DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut State {
        self.0.as_mut().unwrap_or_else(|| unreachable!())
    }
}

impl State {
    /// The context current on this thread, even if it has failed.
    pub(super) fn context(&mut self) -> Outcome<&mut Context> {
        let handle = current();
        if handle == 0 {
            return Err(misuse(INVALID_CONTEXT, "no context is current on this thread"));
        }
        let gone = || misuse(CONTEXT_IS_DESTROYED, "this thread's current context was released");
        self.contexts.get_mut(&handle).ok_or_else(gone)
    }

    /// The context current on this thread, unless it has failed.
    pub(super) fn healthy(&mut self) -> Outcome<&mut Context> {
        let context = self.context()?;
        context.check()?;
        Ok(context)
    }

    /// Rejects a call that could wait for work or begin it implicitly, if this thread is capturing.
    /// The thread's captures become invalid.
    pub(super) fn forbid_in_capture(&mut self) -> Outcome {
        let me = thread::current().id();
        let captures = self.contexts.values_mut().flat_map(|context| context.captures.values_mut());
        let (mut any, mut was_invalid) = (false, false);
        for capture in captures.filter(|capture| capture.thread == me) {
            any = true;
            was_invalid |= std::mem::replace(&mut capture.is_invalid, true);
        }
        match (any, was_invalid) {
            (false, _) => Ok(()),
            (true, false) => {
                Err(misuse(STREAM_CAPTURE_UNSUPPORTED, "not allowed on a capturing thread"))
            }
            (true, true) => Err(STREAM_CAPTURE_INVALIDATED.into()),
        }
    }
}

impl Context {
    /// An empty context, with all memory of its device free.
    pub(super) fn new(device: usize, gpu: &'static Gpu) -> Self {
        Self {
            handle: new_handle(),
            device,
            gpu,
            references: 0,
            memory: Arc::new(Memory::new(gpu.model.memory_bytes)),
            failed: None,
            why: None,
            streams: BTreeMap::new(),
            events: BTreeMap::new(),
            modules: BTreeMap::new(),
            functions: BTreeMap::new(),
            graphs: BTreeMap::new(),
            execs: BTreeMap::new(),
            captures: BTreeMap::new(),
            allocations: BTreeMap::new(),
            pinned: BTreeMap::new(),
            waiting: 0,
            order: 0,
        }
    }

    /// The device's model.
    pub(super) fn model(&self) -> &'static Model {
        &self.gpu.model
    }

    /// The sticky error, if there is one.
    pub(super) fn check(&self) -> Outcome {
        self.failed.map_or(Ok(()), |code| Err(code.into()))
    }

    /// Makes the device fail: it executes no more work.
    pub(super) fn fail(&mut self, code: i32) {
        self.failed.get_or_insert(code);
        for stream in self.streams.values_mut() {
            stream.queue.clear();
            stream.run = None;
        }
    }

    /// True if all work up to sequence number `last` has ended: on `stream`, or on all streams if
    /// `None`.
    pub(super) fn is_done(&self, stream: Option<Handle>, last: u64) -> bool {
        let mut streams =
            self.streams.iter().filter(|(handle, _)| stream.is_none_or(|one| one == **handle));
        streams.all(|(_, stream)| stream.queue.front().is_none_or(|item| item.order > last))
    }

    /// The stream of a handle, unless it is destroyed or a default stream.
    pub(super) fn stream(&mut self, handle: Handle) -> Outcome<&mut Stream> {
        if handle < FIRST {
            // The handle is 0 or one of the driver's two handles for default streams.
            let capture = self.captures.values_mut().next();
            return Err(match capture.map(|capture| capture.is_invalid = true) {
                Some(()) => misuse(STREAM_CAPTURE_IMPLICIT, "the default stream, during a capture"),
                None => misuse(INVALID_HANDLE, "the default stream, which is not modelled"),
            });
        }
        let stream = find(&mut self.streams, "stream", handle)?;
        if stream.is_destroyed { Err(dead("stream", handle)) } else { Ok(stream) }
    }

    /// An event.
    pub(super) fn event(&mut self, handle: Handle) -> Outcome<&mut Event> {
        find(&mut self.events, "event", handle)
    }

    /// Appends to a stream that is not capturing.
    pub(super) fn push(&mut self, stream: Handle, step: Step) -> Outcome {
        self.order += 1;
        let item = Item { order: self.order, at: Instant::now(), step };
        self.stream(stream)?.queue.push_back(item);
        changed();
        Ok(())
    }

    /// The device address of a host range; `None` if it is not pinned.
    pub(super) fn pinned(&self, address: usize, bytes: usize) -> Outcome<Option<u64>> {
        let holder = self.pinned.range(..=address).next_back();
        let Some((offset, pinned)) = holder.map(|(start, pinned)| (address - start, pinned)) else {
            return Ok(None);
        };
        match pinned.bytes.saturating_sub(offset) {
            0 => Ok(None),
            left if bytes <= left => Ok(Some(pinned.device + offset as u64)),
            left => Err(misuse(
                INVALID_VALUE,
                format!("{bytes} bytes of pinned memory, but only {left} bytes are left"),
            )),
        }
    }

    /// Objects that have not been destroyed, one message per kind.
    pub(super) fn leaks(&self) -> Vec<String> {
        let streams = self.streams.values().filter(|stream| !stream.is_destroyed).count();
        let allocated = self.allocations.values().sum();
        let pinned = self.pinned.values().map(|pinned| pinned.bytes).sum();
        let counts = [
            ("streams", streams, None),
            ("events", self.events.len(), None),
            ("graphs", self.graphs.len(), None),
            ("execs", self.execs.len(), None),
            ("modules", self.modules.len(), None),
            ("allocations", self.allocations.len(), Some(allocated)),
            ("pinned allocations", self.pinned.len(), Some(pinned)),
        ];
        let left = counts.into_iter().filter(|(_, count, _)| *count > 0);
        let of = |bytes: Option<usize>| bytes.map_or(String::new(), |n| format!(" of {n} bytes"));
        left.map(|(kind, count, bytes)| {
            format!("leak: {count} {kind}{} on GPU {}", of(bytes), self.device)
        })
        .collect()
    }
}

/// An object by its handle.
pub(super) fn find<'a, T>(
    table: &'a mut BTreeMap<Handle, T>,
    kind: &str,
    handle: Handle,
) -> Outcome<&'a mut T> {
    table.get_mut(&handle).ok_or_else(|| dead(kind, handle))
}

/// Removes an object by its handle.
pub(super) fn take<T>(table: &mut BTreeMap<Handle, T>, kind: &str, handle: Handle) -> Outcome<T> {
    table.remove(&handle).ok_or_else(|| dead(kind, handle))
}

/// The failure for a handle without an object.
fn dead(kind: &str, handle: Handle) -> Failure {
    let was = (FIRST..NEXT.load(Ordering::SeqCst)).contains(&handle);
    let why = if was { "was destroyed, or is from another context or kind" } else { "never was" };
    misuse(INVALID_HANDLE, format!("{kind} {handle:#x} {why}"))
}
