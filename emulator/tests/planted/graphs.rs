//! Mistakes of programs with graphs: captures, and what a graph needs at its launch.

use std::thread;

use crate::Plant;
use crate::cuda::*;
use crate::host::{STALE, calls, end, fresh, program};

/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`, the one that the driver models.
const THREAD_LOCAL: i32 = 1;

fn begin(stream: u64) {
    ok(cuStreamBeginCapture_v2(stream, THREAD_LOCAL));
}

/// Ends a capture: its graph, made ready.
fn instantiate(stream: u64) -> u64 {
    let graph = made(|graph| cuStreamEndCapture(stream, graph));
    let exec = made(|exec| cuGraphInstantiateWithFlags(exec, graph, 0));
    ok(cuGraphDestroy(graph));
    exec
}

/// Ends a capture that is given up: its error number.
fn abandon(stream: u64) -> i32 {
    let mut graph = 0;
    let code = cuStreamEndCapture(stream, &mut graph);
    if graph != 0 {
        ok(cuGraphDestroy(graph));
    }
    code
}

/// Makes a call within a capture of a stream, or before it: its error number. A call that fails
/// takes the capture with it.
fn within(is_wrong: bool, call: impl Fn(u64) -> i32) -> i32 {
    let stream = open();
    let mut code = if is_wrong { 0 } else { call(stream) };
    begin(stream);
    if is_wrong {
        code = call(stream);
    }
    assert_eq!(abandon(stream), if is_wrong { 901 } else { 0 });
    close(stream, &[]);
    code
}

fn synchronized_stream(is_wrong: bool) -> i32 {
    within(is_wrong, |stream| cuStreamSynchronize(stream))
}

fn synchronized_context(is_wrong: bool) -> i32 {
    within(is_wrong, |_| cuCtxSynchronize())
}

/// Allocates, and gives what it got up.
fn allocation(_: u64) -> i32 {
    let mut memory = 0;
    let code = cuMemAlloc_v2(&mut memory, 4);
    if code == 0 { cuMemFree_v2(memory) } else { code }
}

fn allocated(is_wrong: bool) -> i32 {
    within(is_wrong, allocation)
}

fn begun_twice(is_wrong: bool) -> i32 {
    let stream = open();
    begin(stream);
    let code = if is_wrong { cuStreamBeginCapture_v2(stream, THREAD_LOCAL) } else { 0 };
    abandon(stream);
    close(stream, &[]);
    code
}

/// Captures work on a second stream, which the first one waits for at the end, or not.
fn unjoined(is_wrong: bool) -> i32 {
    let (store, module, first_stream) = program();
    let (second, fork, join) = (stream(), event(), event());
    let memory = alloc(4);
    begin(first_stream);
    ok(cuEventRecord(fork, first_stream));
    ok(cuStreamWaitEvent(second, fork, 0));
    ok(launch(store, (1, 1, 0), &[memory, 7], second));
    if !is_wrong {
        ok(cuEventRecord(join, second));
        ok(cuStreamWaitEvent(first_stream, join, 0));
    }
    let code = abandon(first_stream);
    [fork, join].iter().for_each(|event| ok(cuEventDestroy_v2(*event)));
    ok(cuStreamDestroy_v2(second));
    end(module, first_stream, &[memory]);
    code
}

fn event_from_before(is_wrong: bool) -> i32 {
    let (stream, before) = (open(), event());
    if is_wrong {
        ok(cuEventRecord(before, stream));
    }
    begin(stream);
    if !is_wrong {
        ok(cuEventRecord(before, stream));
    }
    let code = cuStreamWaitEvent(stream, before, 0);
    abandon(stream);
    ok(cuEventDestroy_v2(before));
    close(stream, &[]);
    code
}

fn event_from_within(is_wrong: bool) -> i32 {
    let (stream, inside) = (open(), event());
    begin(stream);
    ok(cuEventRecord(inside, stream));
    let mut code = if is_wrong { cuEventSynchronize(inside) } else { 0 };
    abandon(stream);
    ok(cuEventRecord(inside, stream));
    if !is_wrong {
        code = cuEventSynchronize(inside);
    }
    ok(cuEventDestroy_v2(inside));
    close(stream, &[]);
    code
}

fn ended_elsewhere(is_wrong: bool) -> i32 {
    let (first_stream, fork, join) = (open(), event(), event());
    let second = stream();
    begin(first_stream);
    ok(cuEventRecord(fork, first_stream));
    ok(cuStreamWaitEvent(second, fork, 0));
    let code = if is_wrong { abandon(second) } else { 0 };
    if !is_wrong {
        ok(cuEventRecord(join, second));
        ok(cuStreamWaitEvent(first_stream, join, 0));
        ok(abandon(first_stream));
    } else {
        abandon(first_stream);
    }
    [fork, join].iter().for_each(|event| ok(cuEventDestroy_v2(*event)));
    ok(cuStreamDestroy_v2(second));
    close(first_stream, &[]);
    code
}

fn merged(is_wrong: bool) -> i32 {
    let (first_stream, second, event) = (open(), stream(), event());
    begin(first_stream);
    if is_wrong {
        begin(second);
    }
    ok(cuEventRecord(event, first_stream));
    let code = cuStreamWaitEvent(second, event, 0);
    if is_wrong {
        abandon(second);
    } else {
        ok(cuEventRecord(event, second));
        ok(cuStreamWaitEvent(first_stream, event, 0));
    }
    abandon(first_stream);
    ok(cuEventDestroy_v2(event));
    ok(cuStreamDestroy_v2(second));
    close(first_stream, &[]);
    code
}

fn ended_by_another_thread(is_wrong: bool) -> i32 {
    let stream = open();
    let context = made(|context| cuDevicePrimaryCtxRetain(context, 0));
    ok(cuDevicePrimaryCtxRelease_v2(0));
    begin(stream);
    let code = if is_wrong {
        let other = thread::spawn(move || {
            ok(cuCtxSetCurrent(context));
            abandon(stream)
        });
        other.join().expect("no panic")
    } else {
        0
    };
    abandon(stream);
    close(stream, &[]);
    code
}

/// A graph that stores 7, and its memory.
fn graph(store: u64, stream: u64) -> (u64, u64) {
    let memory = alloc(4);
    begin(stream);
    ok(launch(store, (1, 1, 0), &[memory, 7], stream));
    (instantiate(stream), memory)
}

fn destroyed_exec(is_wrong: bool) -> i32 {
    let (store, module, stream) = program();
    let (exec, memory) = graph(store, stream);
    if is_wrong {
        ok(cuGraphExecDestroy(exec));
    }
    let code = cuGraphLaunch(exec, stream);
    if !is_wrong {
        ok(cuGraphExecDestroy(exec));
    }
    end(module, stream, &[memory]);
    code
}

fn freed_before_replay(is_wrong: bool) -> i32 {
    let (store, module, stream) = program();
    let (exec, memory) = graph(store, stream);
    if is_wrong {
        ok(cuMemFree_v2(memory));
    }
    ok(cuGraphLaunch(exec, stream));
    let code = cuStreamSynchronize(stream);
    if !is_wrong {
        ok(cuGraphExecDestroy(exec));
        end(module, stream, &[memory]);
    }
    code
}

fn captured_instead_of_run(is_wrong: bool) -> i32 {
    let (store, module, stream) = program();
    let (exec, memory) = graph(store, stream);
    let zero = 0;
    ok(cuMemcpyHtoDAsync_v2(memory, &zero, 4, stream));
    if !is_wrong {
        ok(cuGraphLaunch(exec, stream));
    }
    let code = fresh(first(memory, stream) == 7);
    ok(cuGraphExecDestroy(exec));
    end(module, stream, &[memory]);
    code
}

/// The fork of a capture stores to what the first stream copies, and only the join comes later.
fn copy_beside_its_kernel(is_wrong: bool) -> i32 {
    let (store, module, first_stream) = program();
    let (second, fork, join) = (stream(), event(), event());
    let (source, target) = (numbers(1, first_stream), alloc(4));
    begin(first_stream);
    ok(cuEventRecord(fork, first_stream));
    ok(cuStreamWaitEvent(second, fork, 0));
    ok(launch(store, (1, 1, 0), &[source, 7], second));
    ok(cuEventRecord(join, second));
    if !is_wrong {
        ok(cuStreamWaitEvent(first_stream, join, 0));
    }
    ok(cuMemcpyDtoDAsync_v2(target, source, 4, first_stream));
    ok(cuStreamWaitEvent(first_stream, join, 0));
    let exec = instantiate(first_stream);
    // The order of a graph's nodes changes from launch to launch.
    let mut is_fresh = true;
    for _ in 0..16 {
        let zero = 0;
        ok(cuMemcpyHtoDAsync_v2(source, &zero, 4, first_stream));
        ok(cuGraphLaunch(exec, first_stream));
        is_fresh &= first(target, first_stream) == 7;
    }
    [fork, join].iter().for_each(|event| ok(cuEventDestroy_v2(*event)));
    ok(cuStreamDestroy_v2(second));
    ok(cuGraphExecDestroy(exec));
    end(module, first_stream, &[source, target]);
    fresh(is_fresh)
}

pub(crate) const PLANTS: &[Plant] = &[
    calls(
        "a stream synchronized in its capture",
        synchronized_stream,
        900,
        "cuStreamSynchronize: not on a thread that captures",
    ),
    calls(
        "the context synchronized in a capture",
        synchronized_context,
        900,
        "cuCtxSynchronize: not on a thread that captures",
    ),
    calls(
        "memory allocated in a capture",
        allocated,
        900,
        "cuMemAlloc_v2: not on a thread that captures",
    ),
    calls("a capture that begins twice", begun_twice, 900, "the stream is captured already"),
    calls(
        "a fork that is not joined",
        unjoined,
        904,
        "the first stream does not wait for 2 operations",
    ),
    calls(
        "a captured wait for an event from before",
        event_from_before,
        905,
        "the event was recorded outside of the capture",
    ),
    calls(
        "a host that waits for a captured event",
        event_from_within,
        907,
        "the event was recorded in a capture",
    ),
    calls(
        "a capture ended on its fork",
        ended_elsewhere,
        903,
        "the capture began on another stream",
    ),
    calls("two captures that wait for each other", merged, 902, "the event is of another capture"),
    calls(
        "a capture ended by another thread",
        ended_by_another_thread,
        908,
        "another thread began the capture",
    ),
    calls("a graph that is destroyed", destroyed_exec, 400, "cuGraphLaunch: exec 0x"),
    calls(
        "memory that a graph still uses",
        freed_before_replay,
        700,
        "are outside of every allocation",
    ),
    calls("a captured kernel taken for one that ran", captured_instead_of_run, STALE, ""),
    calls("a graph without the edge to its copy", copy_beside_its_kernel, STALE, ""),
];
