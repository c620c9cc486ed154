//! A minimal stub driver, whose streams, graphs and memory are in this process.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{ptr, thread};

use emulator_nccl::*;

/// A call that has not returned after this time is considered hung.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

static MEMORY: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());
static STREAMS: Mutex<Vec<Sender<Job>>> = Mutex::new(vec![]);
/// The first error returned by an operation.
pub(crate) static STICKY: AtomicI32 = AtomicI32::new(0);
/// While this is set, calls of the driver block.
pub(crate) static IS_SLOW: AtomicBool = AtomicBool::new(false);
/// True once a call of the driver has begun.
pub(crate) static IS_INSIDE: AtomicBool = AtomicBool::new(false);
thread_local! {
    /// The device of this thread's context.
    pub(crate) static DEVICE: Cell<i32> = const { Cell::new(0) };
    static CAPTURE: RefCell<Option<Graph>> = const { RefCell::new(None) };
}

#[derive(Clone, Copy)]
struct Operation {
    run: Call<i32>,
    release: Call<()>,
    data: usize,
}

/// Operations that may be replayed; they are released after the last replay.
#[derive(Default)]
pub(crate) struct Graph(Vec<Operation>);

impl Graph {
    /// Releases the operations, although they can still be run.
    pub(crate) fn release(&self) {
        for operation in &self.0 {
            // SAFETY: the library accepts any number for data.
            unsafe { (operation.release)(ptr::without_provenance_mut(operation.data)) }
        }
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        self.release();
    }
}

enum Job {
    Run(Arc<Graph>),
    Tell(Sender<()>),
}

/// A stream with its own thread.
#[derive(Clone, Copy)]
pub(crate) struct Stream(usize);

impl Stream {
    pub(crate) fn new() -> Self {
        let (sender, jobs) = channel();
        thread::spawn(move || {
            for job in jobs {
                match job {
                    Job::Run(graph) => graph.0.iter().for_each(run),
                    Job::Tell(sender) => drop(sender.send(())),
                }
            }
        });
        let mut streams = STREAMS.lock().unwrap();
        streams.push(sender);
        Self(streams.len())
    }

    fn send(&self, job: Job) {
        STREAMS.lock().unwrap()[self.0 - 1].send(job).unwrap();
    }

    pub(crate) fn launch(&self, graph: &Arc<Graph>) {
        self.send(Job::Run(graph.clone()));
    }

    /// Returns a channel that receives a message once all work so far has ended.
    pub(crate) fn end(&self) -> Receiver<()> {
        let (sender, receiver) = channel();
        self.send(Job::Tell(sender));
        receiver
    }

    pub(crate) fn wait(&self) {
        self.end().recv_timeout(PATIENCE).expect("the stream hangs");
    }

    pub(crate) fn raw(&self) -> *mut c_void {
        ptr::without_provenance_mut(self.0)
    }
}

fn run(operation: &Operation) {
    // SAFETY: the library accepts any number for data.
    let code = unsafe { (operation.run)(ptr::without_provenance_mut(operation.data)) };
    let _ = STICKY.compare_exchange(0, code, Ordering::SeqCst, Ordering::SeqCst);
}

pub(crate) fn wait_until(is_so: impl Fn() -> bool) {
    while !is_so() {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Captures what the call enqueues.
pub(crate) fn capture(call: impl FnOnce()) -> Arc<Graph> {
    CAPTURE.set(Some(Graph::default()));
    call();
    Arc::new(CAPTURE.take().unwrap())
}

extern "C" fn enqueue(
    stream: *mut c_void,
    _: *const c_char,
    run: Call<i32>,
    release: Call<()>,
    data: *mut c_void,
) -> i32 {
    IS_INSIDE.store(true, Ordering::SeqCst);
    wait_until(|| !IS_SLOW.load(Ordering::SeqCst));
    if stream.is_null() {
        return 400;
    }
    let operation = Operation { run, release, data: data.addr() };
    let captured = CAPTURE
        .with_borrow_mut(|graph| graph.as_mut().map(|graph| graph.0.push(operation)).is_some());
    if !captured {
        Stream(stream.addr()).send(Job::Run(Arc::new(Graph(vec![operation]))));
    }
    0
}

// SAFETY: the function accesses no memory.
unsafe extern "C" fn declare(_: *const Declared, _: usize) {}

extern "C" fn address(device: u64, bytes: u64) -> *mut u8 {
    let memory = MEMORY.lock().unwrap();
    let found = memory.range(..=device).next_back();
    let is_inside = found.is_some_and(|(at, length)| device + bytes <= at + length);
    if is_inside { ptr::with_exposed_provenance_mut(device as usize) } else { ptr::null_mut() }
}

extern "C" fn set_written(_: u64, _: u64) {}

extern "C" fn current_device() -> i32 {
    DEVICE.get()
}

extern "C" fn allocate(_: *mut u64, _: usize) -> c_int {
    CAPTURE.with_borrow(|graph| if graph.is_some() { 900 } else { 0 })
}

extern "C" fn free(_: u64) -> c_int {
    0
}

/// Installs this driver in place of the emulated one.
pub(crate) fn install() {
    use_driver(Driver { enqueue, declare, address, set_written, current_device, allocate, free });
}

/// Device memory for this many numbers, filled with ones.
pub(crate) fn ones(count: usize) -> u64 {
    let at = Box::leak(vec![1f32; count].into_boxed_slice()).as_mut_ptr().expose_provenance();
    MEMORY.lock().unwrap().insert(at as u64, 4 * count as u64);
    at as u64
}

/// Removes this memory from the device.
pub(crate) fn forget(at: u64) {
    MEMORY.lock().unwrap().remove(&at);
}
