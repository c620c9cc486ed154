//! Mistakes in programs with graphs, during capture and at graph launch.

use std::ptr;
use std::thread;

use crate::FaultProgram;
use crate::cuda::*;
use crate::host::{STALE, calls, fresh, release, run};

/// Makes a call during a capture (if `is_wrong`) or before it; returns the error code. A call that
/// fails invalidates the capture.
fn within(gpu: &Gpu, is_wrong: bool, call: impl Fn() -> i32) -> i32 {
    let mut code = if is_wrong { 0 } else { call() };
    gpu.begin();
    if is_wrong {
        code = call();
    }
    assert_eq!(gpu.abandon(gpu.stream), if is_wrong { 901 } else { 0 });
    code
}

/// Makes a call on another thread, with the same context.
fn elsewhere(gpu: &Gpu, call: impl FnOnce() -> i32 + Send) -> i32 {
    let context = gpu.context;
    let call = move || {
        ok(cuCtxSetCurrent(context));
        call()
    };
    thread::scope(|scope| scope.spawn(call).join().expect("no panic"))
}

/// Begins a capture, and adds a second stream to it.
fn forked(gpu: &Gpu) -> u64 {
    let second = gpu.new_stream();
    gpu.begin();
    gpu.order(gpu.stream, second);
    second
}

/// A graph that stores 7, and the memory that it stores to.
fn graph(gpu: &Gpu) -> (u64, u64) {
    let memory = gpu.numbers(&[0]);
    gpu.begin();
    gpu.put(memory, 7, gpu.stream);
    (gpu.end(), memory)
}

/// An event that was recorded in an ended capture; in the correct program it is then recorded
/// again, outside a capture.
fn from_capture(gpu: &Gpu, is_wrong: bool) -> u64 {
    let event = gpu.event(2);
    gpu.begin();
    ok(cuEventRecord(event, gpu.stream));
    ok(gpu.abandon(gpu.stream));
    if !is_wrong {
        ok(cuEventRecord(event, gpu.stream));
    }
    event
}

pub(crate) const PROGRAMS: &[FaultProgram] = &[
    calls("a wait on the thread that captures", 900, "not allowed on a captur", |gpu, wrong| {
        let calls: [fn(&Gpu, u64) -> i32; 6] = [
            |_, _| cuMemFree_v2(0),
            |_, _| cuCtxSynchronize(),
            |gpu, _| cuStreamSynchronize(gpu.stream),
            |gpu, _| cuStreamQuery(gpu.stream),
            |_, event| cuEventQuery(event),
            |_, event| cuEventSynchronize(event),
        ];
        let event = gpu.event(2);
        let codes = calls.map(|call| within(gpu, wrong, || call(gpu, event)));
        assert_eq!(codes, [codes[0]; 6]);
        codes[0]
    }),
    calls("a wait for a captured stream", 900, "a wait for a captured stream", |gpu, wrong| {
        let stream = gpu.stream;
        within(gpu, wrong, || elsewhere(gpu, move || cuStreamSynchronize(stream)))
    }),
    calls("a query of a captured stream", 900, "a query of a captured stream", |gpu, wrong| {
        let stream = gpu.stream;
        within(gpu, wrong, || elsewhere(gpu, move || cuStreamQuery(stream)))
    }),
    calls("a wait for all streams in a capture", 900, "of the context is captur", |gpu, wrong| {
        within(gpu, wrong, || elsewhere(gpu, || cuCtxSynchronize()))
    }),
    calls("a copy of pageable memory in a capture", 900, "that is not pinned", |gpu, wrong| {
        let memory = gpu.alloc(4);
        within(gpu, wrong, || cuMemcpyHtoDAsync_v2(memory, &0, 4, gpu.stream))
    }),
    calls("a graph launched in a capture", 900, "a graph is launched", |gpu, wrong| {
        let (exec, _) = graph(gpu);
        within(gpu, wrong, || cuGraphLaunch(exec, gpu.stream))
    }),
    calls("a graph uploaded in a capture", 900, "a graph is uploaded", |gpu, wrong| {
        let (exec, _) = graph(gpu);
        within(gpu, wrong, || cuGraphUpload(exec, gpu.stream))
    }),
    calls("a capture that begins twice", 900, "the stream is already capturing", |gpu, wrong| {
        gpu.begin();
        let code = if wrong { cuStreamBeginCapture_v2(gpu.stream, 1) } else { 0 };
        gpu.abandon(gpu.stream);
        code
    }),
    calls("a capture for all threads", 801, "capture mode 0 is not modelled", |gpu, wrong| {
        let code = cuStreamBeginCapture_v2(gpu.stream, if wrong { 0 } else { 1 });
        if !wrong {
            gpu.abandon(gpu.stream);
        }
        code
    }),
    calls("a capture that ends twice", 401, "the stream is not capturing", |gpu, wrong| {
        gpu.begin();
        ok(gpu.abandon(gpu.stream));
        if wrong { gpu.abandon(gpu.stream) } else { 0 }
    }),
    calls("a capture ended on its fork", 903, "the capture began on another str", |gpu, wrong| {
        let second = forked(gpu);
        let code = if wrong { gpu.abandon(second) } else { 0 };
        gpu.order(second, gpu.stream);
        ok(gpu.abandon(gpu.stream));
        code
    }),
    calls("a capture ended by another thread", 908, "another thread began the", |gpu, wrong| {
        gpu.begin();
        let (stream, mut graph) = (gpu.stream, 0);
        let end = || cuStreamEndCapture(stream, &mut graph);
        let code = if wrong { elsewhere(gpu, end) } else { 0 };
        ok(gpu.abandon(gpu.stream));
        code
    }),
    calls("a fork that is not joined", 904, "does not wait for 2 operations", |gpu, wrong| {
        let (memory, second) = (gpu.alloc(4), forked(gpu));
        gpu.put(memory, 7, second);
        if !wrong {
            gpu.order(second, gpu.stream);
        }
        gpu.abandon(gpu.stream)
    }),
    calls("two captures that wait for each other", 902, "from another capture", |gpu, wrong| {
        let (second, event) = (gpu.new_stream(), gpu.event(2));
        gpu.begin();
        if wrong {
            ok(cuStreamBeginCapture_v2(second, 1));
        }
        ok(cuEventRecord(event, gpu.stream));
        let code = cuStreamWaitEvent(second, event, 0);
        if wrong {
            gpu.abandon(second);
        } else {
            gpu.order(second, gpu.stream);
        }
        gpu.abandon(gpu.stream);
        code
    }),
    calls("a captured wait for earlier work", 905, "outside of the capture", |gpu, wrong| {
        let before = gpu.event(2);
        if wrong {
            ok(cuEventRecord(before, gpu.stream));
        }
        gpu.begin();
        if !wrong {
            ok(cuEventRecord(before, gpu.stream));
        }
        let code = cuStreamWaitEvent(gpu.stream, before, 0);
        gpu.abandon(gpu.stream);
        code
    }),
    calls("the default stream in a capture", 906, "during a capture", |gpu, wrong| {
        let event = gpu.event(2);
        gpu.begin();
        let code = cuEventRecord(event, if wrong { 0 } else { gpu.stream });
        gpu.abandon(gpu.stream);
        code
    }),
    calls("a host's wait for a captured event", 907, "recorded in a capture (", |gpu, wrong| {
        cuEventSynchronize(from_capture(gpu, wrong))
    }),
    calls("a stream's wait for a captured event", 907, "that has ended", |gpu, wrong| {
        cuStreamWaitEvent(gpu.new_stream(), from_capture(gpu, wrong), 0)
    }),
    calls("a stream destroyed in its capture", 0, "destroyed during its", |gpu, wrong| {
        let second = gpu.leave(gpu.new_stream());
        if wrong {
            ok(cuStreamBeginCapture_v2(second, 1));
        }
        cuStreamDestroy_v2(second)
    }),
    calls("all-reduces without an order", 901, "`a` (node |are unordered", |gpu, wrong| {
        let add = |stream, name: &std::ffi::CStr| {
            ok(driverEnqueue(stream, name.as_ptr(), run, release, ptr::null_mut()));
        };
        let second = forked(gpu);
        add(second, c"a");
        if !wrong {
            gpu.order(second, gpu.stream);
        }
        add(gpu.stream, c"b");
        gpu.order(second, gpu.stream);
        gpu.abandon(gpu.stream)
    }),
    calls("a copy of freed memory", 700, "that was freed", |gpu, wrong| {
        let (host, memory) = (gpu.pinned(), gpu.alloc(4));
        gpu.begin();
        ok(cuMemcpyDtoHAsync_v2(host, memory, 4, gpu.stream));
        let exec = gpu.end();
        if wrong {
            ok(cuMemFree_v2(gpu.leave(memory)));
        }
        ok(cuGraphLaunch(exec, gpu.stream));
        cuStreamSynchronize(gpu.stream)
    }),
    calls("a captured kernel assumed to have run", STALE, "", |gpu, wrong| {
        let (exec, memory) = graph(gpu);
        if !wrong {
            ok(cuGraphLaunch(exec, gpu.stream));
        }
        fresh(gpu.read(memory, 1) == [7])
    }),
    // The forked stream stores to the source of the first stream's copy, but the first stream waits
    // for it only after the copy.
    calls("a graph without the edge to its copy", STALE, "", |gpu, wrong| {
        let (source, target) = (gpu.numbers(&[0]), gpu.alloc(4));
        let second = forked(gpu);
        gpu.put(source, 7, second);
        if !wrong {
            gpu.order(second, gpu.stream);
        }
        ok(cuMemcpyDtoDAsync_v2(target, source, 4, gpu.stream));
        gpu.order(second, gpu.stream);
        let exec = gpu.end();
        // Unordered nodes run in a different order in each launch, so several launches are needed.
        let is_fresh = (0..16).all(|_| {
            ok(cuMemcpyHtoDAsync_v2(source, &0, 4, gpu.stream));
            ok(cuGraphLaunch(exec, gpu.stream));
            gpu.read(target, 1) == [7]
        });
        fresh(is_fresh)
    }),
];
