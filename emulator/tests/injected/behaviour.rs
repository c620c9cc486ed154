//! Correct programs: the order of work, captures, and injected failures.

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use crate::cuda::*;
use crate::{FaultProgram, Program};

static IS_OPEN: AtomicBool = AtomicBool::new(false);
static ENTRIES: AtomicU32 = AtomicU32::new(0);
static RUNS: AtomicU32 = AtomicU32::new(0);
static RELEASES: AtomicU32 = AtomicU32::new(0);

/// Waits for the gate.
extern "C" fn run(_: *mut c_void) -> i32 {
    ENTRIES.fetch_add(1, Ordering::SeqCst);
    while !IS_OPEN.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_millis(1));
    }
    RUNS.fetch_add(1, Ordering::SeqCst);
    0
}

extern "C" fn release(_: *mut c_void) {
    RELEASES.fetch_add(1, Ordering::SeqCst);
}

/// Blocks a stream, or a graph launched on it, until the gate opens.
fn hold(stream: u64) {
    ok(driverEnqueue(stream, c"gate".as_ptr(), run, release, ptr::null_mut()));
}

fn open_gate() {
    IS_OPEN.store(true, Ordering::SeqCst);
}

fn wait_for(counter: &AtomicU32, count: u32) {
    while counter.load(Ordering::SeqCst) != count {
        thread::sleep(Duration::from_millis(1));
    }
}

/// In each of 64 rounds, two streams store to one address after a gate opens. Returns the distinct
/// values that were read.
fn rounds(gpu: &Gpu, is_ordered: bool) -> Vec<u32> {
    let [gate, first, second] = [(); 3].map(|()| gpu.new_stream());
    let (memory, opened) = (gpu.alloc(4), gpu.event(2));
    let seen: BTreeSet<u32> = (0..64)
        .flat_map(|_| {
            IS_OPEN.store(false, Ordering::SeqCst);
            hold(gate);
            ok(cuEventRecord(opened, gate));
            ok(cuStreamWaitEvent(first, opened, 0));
            ok(cuStreamWaitEvent(second, opened, 0));
            gpu.put(memory, 1, first);
            if is_ordered {
                gpu.order(first, second);
            }
            gpu.put(memory, 2, second);
            open_gate();
            ok(cuCtxSynchronize());
            gpu.read(memory, 1)
        })
        .collect();
    seen.into_iter().collect()
}

/// Launches a graph of two unordered stores 64 times. Returns the values that were read.
fn graph_orders(gpu: &Gpu) -> Vec<u32> {
    let (memory, second) = (gpu.alloc(4), gpu.new_stream());
    gpu.begin();
    gpu.order(gpu.stream, second);
    gpu.put(memory, 1, gpu.stream);
    gpu.put(memory, 2, second);
    gpu.order(second, gpu.stream);
    let exec = gpu.end();
    let seen: BTreeSet<u32> = (0..64)
        .flat_map(|_| {
            ok(cuGraphLaunch(exec, gpu.stream));
            gpu.read(memory, 1)
        })
        .collect();
    seen.into_iter().collect()
}

const fn promise(
    name: &'static str,
    variables: &'static [&'static str],
    calls: fn(&Gpu, bool) -> i32,
) -> FaultProgram {
    FaultProgram { name, variables, program: Program::Calls(calls), code: 0, says: "" }
}

pub(crate) const PROMISES: &[FaultProgram] = &[
    promise("streams without an event run in both orders", &["DRIVER_SEED=77"], |gpu, _| {
        assert_eq!([rounds(gpu, false), rounds(gpu, true)], [vec![1, 2], vec![2]]);
        assert_eq!(graph_orders(gpu), [1, 2]);
        0
    }),
    promise("the eager worker keeps the calls' order", &["DRIVER_SCHEDULE=eager"], |gpu, _| {
        assert_eq!(rounds(gpu, false), [2]);
        0
    }),
    promise("the late worker reverses the order", &["DRIVER_SCHEDULE=late"], |gpu, _| {
        assert_eq!(rounds(gpu, false), [1]);
        // The work begins although the host does not wait.
        let runs = RUNS.load(Ordering::SeqCst);
        hold(gpu.stream);
        wait_for(&RUNS, runs + 1);
        0
    }),
    promise("an event marks a point in its stream", &[], |gpu, _| {
        let [second, event] = [gpu.new_stream(), gpu.event(2)];
        assert_eq!(cuEventQuery(event), 0, "never recorded");
        hold(gpu.stream);
        ok(cuEventRecord(event, gpu.stream));
        ok(cuStreamWaitEvent(second, event, 0));
        let memory = gpu.alloc(4);
        gpu.put(memory, 7, second);
        // Recording an event again does not affect earlier waits for the event.
        ok(cuEventRecord(event, gpu.new_stream()));
        ok(cuEventSynchronize(event));
        assert_eq!(cuStreamQuery(second), 600);
        open_gate();
        ok(cuStreamSynchronize(second));
        assert_eq!(gpu.read(memory, 1), [7]);
        0
    }),
    promise("work of destroyed objects completes", &[], |gpu, _| {
        let (second, memory) = (gpu.leave(gpu.new_stream()), gpu.alloc(4));
        hold(second);
        gpu.put(memory, 8, second);
        ok(cuStreamDestroy_v2(second));
        gpu.begin();
        hold(gpu.stream);
        let exec = gpu.leave(gpu.end());
        (0..2).for_each(|_| ok(cuGraphLaunch(exec, gpu.stream)));
        ok(cuGraphExecDestroy(exec));
        assert_eq!((RUNS.load(Ordering::SeqCst), cuStreamQuery(gpu.stream)), (0, 600));
        open_gate();
        ok(cuCtxSynchronize());
        assert_eq!(gpu.read(memory, 1), [8]);
        wait_for(&RUNS, 3);
        wait_for(&RELEASES, 2);
        0
    }),
    promise("launches of one graph do not overlap", &[], |gpu, _| {
        gpu.begin();
        hold(gpu.stream);
        let exec = gpu.end();
        ok(cuGraphLaunch(exec, gpu.stream));
        ok(cuGraphLaunch(exec, gpu.new_stream()));
        thread::sleep(Duration::from_millis(20));
        assert_eq!(ENTRIES.load(Ordering::SeqCst), 1);
        open_gate();
        wait_for(&RUNS, 2);
        0
    }),
    promise("memory is freed after all work", &[], |gpu, _| {
        let memory = gpu.leave(gpu.alloc(4));
        hold(gpu.stream);
        gpu.put(memory, 7, gpu.stream);
        let opens = thread::spawn(|| {
            thread::sleep(Duration::from_millis(20));
            open_gate();
        });
        ok(cuMemFree_v2(memory));
        assert_eq!(RUNS.load(Ordering::SeqCst), 1);
        opens.join().expect("no panic");
        0
    }),
    promise("other threads continue during a capture", &[], |gpu, _| {
        let (context, event, other) = (gpu.context, gpu.event(2), gpu.new_stream());
        gpu.begin();
        let beside = thread::spawn(move || {
            ok(cuCtxSetCurrent(context));
            ok(cuMemFree_v2(made(|address| cuMemAlloc_v2(address, 4))));
            ok(cuEventRecord(event, other));
            ok(cuEventSynchronize(event));
        });
        beside.join().expect("no panic");
        gpu.abandon(gpu.stream)
    }),
    promise("an error lasts", &["DRIVER_PLANT=cuEventRecord:2=700"], |gpu, _| {
        let event = gpu.event(2);
        let codes = [(); 3].map(|()| cuEventRecord(event, gpu.stream));
        assert_eq!(codes, [0, 700, 700]);
        let objects = [cuMemAlloc_v2(&mut 0, 4), cuEventDestroy_v2(gpu.leave(event))];
        assert_eq!((objects, cuCtxSynchronize()), ([700; 2], 700));
        cuCtxSetCurrent(gpu.context)
    }),
    promise("the named kernel hangs", &["DRIVER_PLANT=hang:plant:2"], |gpu, _| {
        let memory = gpu.numbers(&[0]);
        gpu.put(memory, 1, gpu.stream);
        ok(cuStreamSynchronize(gpu.stream));
        gpu.put(memory, 2, gpu.stream);
        thread::sleep(Duration::from_millis(20));
        assert_eq!(cuStreamQuery(gpu.stream), 600);
        // Process exit does not wait for the hung kernel.
        crate::report(&format!("{}0", crate::CODE));
        std::process::exit(0)
    }),
];
