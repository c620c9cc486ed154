//! A driver of a few lines, with streams, graphs and memory; and ranks, as processes.
#![allow(unsafe_code)]

use std::any::type_name_of_val;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{env, fs, ptr, slice, thread};

use emulator_nccl::*;

/// A call that ends sooner does not hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// A call that has not ended by then hangs.
pub(crate) const A_WHILE: Duration = Duration::from_millis(300);

static MEMORY: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());
static WRITTEN: Mutex<Vec<(u64, u64)>> = Mutex::new(vec![]);
static STREAMS: Mutex<Vec<Sender<Job>>> = Mutex::new(vec![]);
/// Errors that operations ended with.
pub(crate) static STICKY: Mutex<Vec<i32>> = Mutex::new(vec![]);
thread_local! {
    /// The device of this thread's context.
    pub(crate) static DEVICE: Cell<i32> = const { Cell::new(-1) };
    static CAPTURE: RefCell<Option<Graph>> = const { RefCell::new(None) };
}

#[derive(Clone, Copy)]
struct Operation {
    run: Call<i32>,
    release: Call<()>,
    data: usize,
}

/// Operations that may run again; released once the last run is over.
#[derive(Default)]
pub(crate) struct Graph(Vec<Operation>);

impl Drop for Graph {
    fn drop(&mut self) {
        for operation in &self.0 {
            // SAFETY: released once, here.
            unsafe { (operation.release)(ptr::without_provenance_mut(operation.data)) }
        }
    }
}

enum Job {
    Run(Arc<Graph>),
    Tell(Sender<()>),
}

/// A stream with a thread of its own.
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

    /// Hears once all work until now has ended.
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
    // SAFETY: the operation is not released yet.
    let code = unsafe { (operation.run)(ptr::without_provenance_mut(operation.data)) };
    if code != 0 {
        STICKY.lock().unwrap().push(code);
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
    name: *const c_char,
    run: Call<i32>,
    release: Call<()>,
    data: *mut c_void,
) -> i32 {
    // SAFETY: a text of the library's.
    assert_eq!(unsafe { CStr::from_ptr(name) }, c"ncclAllReduce");
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

// SAFETY: it reaches nothing.
unsafe extern "C" fn declare(_: *const Declared, _: usize) {}

extern "C" fn address(device: u64, bytes: u64) -> *mut u8 {
    let memory = MEMORY.lock().unwrap();
    let found = memory.range(..=device).next_back();
    let is_inside = found.is_some_and(|(at, length)| device + bytes <= at + length);
    if is_inside { ptr::with_exposed_provenance_mut(device as usize) } else { ptr::null_mut() }
}

extern "C" fn set_written(device: u64, bytes: u64) {
    WRITTEN.lock().unwrap().push((device, bytes));
}

extern "C" fn current_device() -> i32 {
    DEVICE.get()
}

extern "C" fn allocate(_: *mut u64, _: usize) -> c_int {
    CAPTURE.with_borrow(|graph| if graph.is_some() { 900 } else { 0 })
}

extern "C" fn free(_: u64) -> c_int {
    0
}

/// Puts this driver in the place of the real one, and this thread on a device.
pub(crate) fn begin(device: i32) {
    use_driver(Driver { enqueue, declare, address, set_written, current_device, allocate, free });
    DEVICE.set(device);
}

/// Memory of the device, which is the process's.
pub(crate) struct Buffer {
    pub(crate) at: u64,
    pub(crate) bytes: usize,
}

impl Buffer {
    pub(crate) fn new<T: Copy>(values: &[T]) -> Self {
        let bytes = size_of_val(values);
        let at = Box::leak(values.to_vec().into_boxed_slice()).as_mut_ptr().expose_provenance();
        MEMORY.lock().unwrap().insert(at as u64, bytes as u64);
        Self { at: at as u64, bytes }
    }

    pub(crate) fn forget(&self) {
        MEMORY.lock().unwrap().remove(&self.at);
    }

    pub(crate) fn values<T: Copy>(&self) -> Vec<T> {
        let at = ptr::with_exposed_provenance(self.at as usize);
        // SAFETY: a slice of such values was leaked there; the streams that write are idle.
        unsafe { slice::from_raw_parts(at, self.bytes / size_of::<T>()) }.to_vec()
    }

    pub(crate) fn is_written(&self) -> bool {
        WRITTEN.lock().unwrap().contains(&(self.at, self.bytes as u64))
    }

    /// True if it holds the bytes that a failed sum leaves.
    pub(crate) fn is_undefined(&self) -> bool {
        self.values::<u8>().iter().all(|byte| *byte == 0xff)
    }
}

pub(crate) fn new_id() -> UniqueId {
    let mut id = UniqueId([0; 128]);
    // SAFETY: one identifier is written.
    assert_eq!(unsafe { ncclGetUniqueId(&mut id) }, 0);
    id
}

pub(crate) fn init(id: UniqueId, [rank, count]: [i32; 2]) -> Result<Raw, c_int> {
    let mut raw = ptr::null_mut();
    // SAFETY: one handle is written.
    let code = unsafe { ncclCommInitRank(&mut raw, count, id, rank) };
    if code == 0 { Ok(raw) } else { Err(code) }
}

pub(crate) const HALF: c_int = 6;
pub(crate) const FLOAT: c_int = 7;

/// Enqueues the sum of `count` elements of a type, or captures it.
pub(crate) fn sum(
    raw: Raw,
    [from, to]: [&Buffer; 2],
    count: usize,
    of: c_int,
    stream: &Stream,
) -> c_int {
    let [from, to] = [from, to].map(|b| ptr::with_exposed_provenance_mut(b.at as usize));
    // SAFETY: the stream lives as long as the process.
    unsafe { ncclAllReduce(from, to, count, of, 0, raw, stream.raw()) }
}

/// The sum of all of a buffer's floats, in place.
pub(crate) fn sum_all(raw: Raw, buffer: &Buffer, stream: &Stream) -> c_int {
    sum(raw, [buffer; 2], buffer.bytes / 4, FLOAT, stream)
}

pub(crate) fn async_error(raw: Raw) -> c_int {
    let mut error = -1;
    // SAFETY: one number is written.
    assert_eq!(unsafe { ncclCommGetAsyncError(raw, &mut error) }, 0);
    error
}

/// Waits until it is so.
pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what} does not come");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Waits for the error of a sum.
pub(crate) fn wait_for_error(raw: Raw) -> c_int {
    wait_until("an error", || async_error(raw) != 0);
    async_error(raw)
}

pub(crate) fn last_error() -> String {
    // SAFETY: a text that lives until this thread asks again.
    unsafe { CStr::from_ptr(ncclGetLastError(ptr::null_mut())) }.to_str().unwrap().to_owned()
}

/// How a process ended.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) report: Vec<String>,
}

/// In a process of [`processes`]: the identifier, with rank and count. Else none.
pub(crate) fn given() -> Option<(UniqueId, [i32; 2])> {
    let number = |name| env::var(name).ok()?.parse().ok();
    let place = [number("TEST_RANK")?, number("TEST_COUNT")?];
    let digits = env::var("TEST_ID").ok()?;
    let mut id = UniqueId([0; 128]);
    hex::decode_to_slice(digits, &mut id.0).ok()?;
    Some((id, place))
}

/// The same, on the device of the rank's number.
pub(crate) fn place() -> Option<(UniqueId, [i32; 2])> {
    given().inspect(|(_, place)| begin(place[0]))
}

/// Runs a test again in processes, one a rank, without late connections.
pub(crate) fn processes(test: impl Fn(), count: usize, variables: &[(&str, &str)]) -> Vec<Ended> {
    let name = type_name_of_val(&test);
    let name = name.split_once("::").map_or(name, |(_, name)| name);
    begin(0);
    let id = hex::encode(new_id().0);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let report = |rank: usize| {
        folder.join(format!("{}-{name}-{rank}", std::process::id()).replace("::", "-"))
    };
    let start = |rank: usize| {
        drop(fs::remove_file(report(rank)));
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", name, "--nocapture"]).env("DRIVER_REPORT", report(rank));
        command.env("TEST_RANK", rank.to_string()).env("TEST_COUNT", count.to_string());
        command.env("TEST_ID", &id).env("NCCL_RUNTIME_CONNECT", "0");
        command.envs(variables.iter().copied()).stdout(Stdio::null()).spawn().unwrap()
    };
    let children: Vec<_> = (0..count).map(start).collect();
    let begun = Instant::now();
    let end = |(rank, mut child): (usize, std::process::Child)| loop {
        if let Some(status) = child.try_wait().unwrap() {
            let text = fs::read_to_string(report(rank)).unwrap_or_default();
            drop(fs::remove_file(report(rank)));
            return Ended { status, report: text.lines().map(str::to_owned).collect() };
        }
        if begun.elapsed() > 2 * PATIENCE {
            drop(child.kill());
        }
        thread::sleep(Duration::from_millis(2));
    };
    children.into_iter().enumerate().map(end).collect()
}

/// All ended well; what each reported.
pub(crate) fn reports(ended: &[Ended]) -> Vec<&[String]> {
    assert!(ended.iter().all(|ended| ended.status.success()), "see above");
    ended.iter().map(|ended| &ended.report[..]).collect()
}
