//! The rules that the driver holds. Each test runs in a process of its own, as a program does: the
//! driver's state is the process's, and its report is complete at the end of the process.
#![allow(unsafe_code)]

mod capture;
mod faults;
mod handles;
mod launches;
mod streams;

use std::ffi::{CString, c_void};
use std::process::{Command, exit};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use std::{env, fs, ptr, thread};

use super::api::all::*;
use super::work::Handle;

/// Set in the processes of tests.
const CHILD: &str = "DRIVER_TEST_CHILD";
/// A process of a test that takes longer hangs.
const MAX_TIME: Duration = Duration::from_secs(60);

/// Kernels that write a number to an address, and add one to it.
const PTX: &str = "
// By hand.
.version 8.0
.target sm_80
.address_size 64
.visible .entry store(.param .u64 to, .param .u32 value)
.maxntid 64, 1, 1
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [to];
    ld.param.u32 %r1, [value];
    cvta.to.global.u64 %rd2, %rd1;
    st.global.u32 [%rd2], %r1;
    ret;
}
.visible .entry increase(.param .u64 to)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [to];
    cvta.to.global.u64 %rd2, %rd1;
    ld.global.u32 %r1, [%rd2];
    add.s32 %r2, %r1, 1;
    st.global.u32 [%rd2], %r2;
    ret;
}
";

/// Calls a function of the driver.
macro_rules! call {
    ($($call:tt)*) => {{
        // SAFETY: the test gives what the function asks for.
        unsafe { $($call)* }
    }};
}
use call;

/// Makes tests that run in processes of their own, with these variables, and what is asserted of
/// their reports.
macro_rules! processes {
    ($($(#[$doc:meta])* fn $name:ident[$($variable:literal = $value:literal),*]
        $body:block $report:expr;)*) => {$(
        $(#[$doc])*
        #[test]
        fn $name() {
            let path = concat!(module_path!(), "::", stringify!($name));
            let report = crate::cuda::tests::process(path, &[$(($variable, $value)),*], || $body);
            let check: &dyn Fn(&[&str]) = &$report;
            check(&report.lines().collect::<Vec<_>>());
        }
    )*};
}
use processes;

/// The report of a process that runs `body`.
fn process(path: &str, variables: &[(&str, &str)], body: impl FnOnce()) -> String {
    let test = path.split_once("::").map_or(path, |(_, test)| test);
    if env::var(CHILD).as_deref() == Ok(test) {
        thread::spawn(|| {
            thread::sleep(MAX_TIME);
            eprintln!("it hangs");
            std::process::abort();
        });
        body();
        exit(0);
    }
    let report =
        env::temp_dir().join(format!("{}.{}", test.replace("::", "."), std::process::id()));
    let mut command = Command::new(env::current_exe().expect("this test"));
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
    for name in ["DRIVER_GPUS", "DRIVER_PLANT", "DRIVER_SCHEDULE", "CUDA_VISIBLE_DEVICES"] {
        command.env_remove(name);
    }
    command.env(CHILD, test).env("DRIVER_REPORT", &report).envs(variables.iter().copied());
    let output = command.output().expect("a process");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(&report).unwrap_or_default();
    // There is none if nothing was found.
    let _ = fs::remove_file(&report);
    text
}

/// Nothing was found.
fn clean(report: &[&str]) {
    assert_eq!(report, [""; 0]);
}

/// Each of the findings begins so, in this order.
fn found<T: ToString>(begins: &[T]) -> impl Fn(&[&str]) + use<T> {
    let begins: Vec<String> = begins.iter().map(ToString::to_string).collect();
    move |report| {
        let fits = |(line, begin): (&&str, &String)| line.starts_with(begin.as_str());
        let same = report.len() == begins.len() && report.iter().zip(&begins).all(fits);
        assert!(same, "{report:#?}\nare not\n{begins:#?}");
    }
}

#[track_caller]
fn ok(code: i32) {
    assert_eq!(code, 0);
}

/// A value that a function makes.
#[track_caller]
fn made<T: Default>(make: impl FnOnce(Out<T>) -> i32) -> T {
    let mut value = T::default();
    ok(make(Out::of(&mut value)));
    value
}

/// Starts the driver, with the context of a device current on this thread.
fn open(device: i32) -> Handle {
    ok(call!(cuInit(0)));
    let context = made(|out| call!(cuDevicePrimaryCtxRetain(out, device)));
    ok(call!(cuCtxSetCurrent(context)));
    context
}

fn close(device: i32) {
    ok(call!(cuDevicePrimaryCtxRelease_v2(device)));
}

fn stream() -> Handle {
    made(|out| call!(cuStreamCreate(out, 1)))
}

fn event() -> Handle {
    made(|out| call!(cuEventCreate(out, 2)))
}

fn alloc(bytes: usize) -> u64 {
    made(|out| call!(cuMemAlloc_v2(out, bytes)))
}

/// Pinned memory that holds numbers.
fn pinned(count: usize) -> *mut u32 {
    let mut host = ptr::null_mut();
    ok(call!(cuMemHostAlloc(Out::of(&mut host), 4 * count, 3)));
    host.cast()
}

fn free(memory: u64) {
    ok(call!(cuMemFree_v2(memory)));
}

fn destroy(streams: &[Handle]) {
    streams.iter().for_each(|stream| ok(call!(cuStreamDestroy_v2(*stream))));
}

fn synchronize(stream: Handle) {
    ok(call!(cuStreamSynchronize(stream)));
}

/// Lets `later` wait for what `first` holds now.
fn order(first: Handle, later: Handle) {
    let event = event();
    ok(call!(cuEventRecord(event, first)));
    ok(call!(cuStreamWaitEvent(later, event, 0)));
    ok(call!(cuEventDestroy_v2(event)));
}

/// Writes one number.
fn write(to: u64, value: u32, stream: Handle) {
    ok(call!(cuMemcpyHtoDAsync_v2(to, (&raw const value).cast(), 4, stream)));
}

/// Reads one number, behind what the stream holds.
fn read(from: u64, stream: Handle) -> u32 {
    let mut value = 0u32;
    ok(call!(cuMemcpyDtoHAsync_v2((&raw mut value).cast(), from, 4, stream)));
    value
}

fn begin(stream: Handle) {
    ok(call!(cuStreamBeginCapture_v2(stream, 1)));
}

/// Ends a capture: what can be launched.
fn end(stream: Handle) -> Handle {
    let graph = made(|out| call!(cuStreamEndCapture(stream, out)));
    let exec = made(|out| call!(cuGraphInstantiateWithFlags(out, graph, 8)));
    ok(call!(cuGraphDestroy(graph)));
    exec
}

/// Ends a capture that fails: its error.
fn end_fails(stream: Handle) -> i32 {
    let mut graph = 1;
    let code = call!(cuStreamEndCapture(stream, Out::of(&mut graph)));
    assert_eq!(graph, 0);
    code
}

fn launch_graph(exec: Handle, stream: Handle) {
    ok(call!(cuGraphLaunch(exec, stream)));
}

/// A module with the kernels, and one of them.
fn kernel(name: &str) -> (Handle, Handle) {
    let (text, name) = (CString::new(PTX).expect("no zero"), CString::new(name).expect("no zero"));
    let module = made(|out| call!(cuModuleLoadData(out, text.as_ptr().cast())));
    (module, made(|out| call!(cuModuleGetFunction(out, module, name.as_ptr()))))
}

/// Launches a kernel on one thread with parameters of 8 bytes, of which it takes what it declares.
fn launch(function: Handle, parameters: &[u64], stream: Handle) -> i32 {
    let pointers = parameters.iter().map(|value| (&raw const *value).cast_mut().cast());
    let mut pointers: Vec<*mut c_void> = pointers.collect();
    let (list, none) = (pointers.as_mut_ptr(), ptr::null_mut());
    call!(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, list, none))
}

/// An operation of another library.
struct Operation {
    run: Box<dyn Fn() -> i32 + Send + Sync>,
    released: Arc<Gate>,
}

// SAFETY: the driver calls it only with the data of `operation`.
unsafe extern "C" fn run(data: *mut c_void) -> i32 {
    // SAFETY: `operation` gives one that is alive until it is released.
    (unsafe { &*data.cast::<Operation>() }.run)()
}

// SAFETY: as for `run`, and once.
unsafe extern "C" fn release(data: *mut c_void) {
    // SAFETY: `operation` gives one that it leaks, and the driver releases it once.
    let operation = unsafe { Box::from_raw(data.cast::<Operation>()) };
    operation.released.open();
}

/// Enqueues or captures an operation; opens at its release.
fn operation(stream: Handle, run_it: impl Fn() -> i32 + Send + Sync + 'static) -> Arc<Gate> {
    let released = Arc::new(Gate::default());
    let data = Operation { run: Box::new(run_it), released: released.clone() };
    let data = Box::into_raw(Box::new(data)).cast();
    ok(call!(driverEnqueue(stream, c"operation".as_ptr(), run, release, data)));
    released
}

/// A wait that one thread opens for others.
#[derive(Debug, Default)]
struct Gate {
    is_open: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.is_open.lock().expect("no panic") = true;
        self.changed.notify_all();
    }

    fn is_open(&self) -> bool {
        *self.is_open.lock().expect("no panic")
    }

    fn wait(&self) {
        let mut is_open = self.is_open.lock().expect("no panic");
        while !*is_open {
            is_open = self.changed.wait(is_open).expect("no panic");
        }
    }
}

/// Holds a stream until the gate opens.
fn hold(stream: Handle) -> Arc<Gate> {
    let gate = Arc::new(Gate::default());
    let held = gate.clone();
    operation(stream, move || {
        held.wait();
        0
    });
    gate
}
