//! Mistakes of programs: memory, launches, streams and events.
#![allow(unsafe_code)]

use std::ptr;

use crate::cuda::*;
use crate::kernels::STORE;
use crate::{Plant, Program};

/// The device ran work too late for a program that did not wait: no error number says so.
pub(crate) const STALE: i32 = -1;

/// The exit code of a program: 0 if it reads what it expects, else [`STALE`].
pub(crate) fn fresh(is_fresh: bool) -> i32 {
    if is_fresh { 0 } else { STALE }
}

/// The kernel, its module, and a stream.
pub(crate) fn program() -> (u64, u64, u64) {
    let stream = open();
    let module = module(STORE);
    (function(module), module, stream)
}

/// Ends a program whose device is healthy.
pub(crate) fn end(module: u64, stream: u64, memory: &[u64]) {
    ok(cuModuleUnload(module));
    close(stream, memory);
}

fn use_after_free(is_wrong: bool) -> i32 {
    let (store, module, stream) = program();
    let memory = alloc(4);
    if is_wrong {
        ok(cuMemFree_v2(memory));
    }
    ok(launch(store, (1, 1, 0), &[memory, 7], stream));
    let code = cuStreamSynchronize(stream);
    if !is_wrong {
        end(module, stream, &[memory]);
    }
    code
}

fn double_free(is_wrong: bool) -> i32 {
    let (stream, memory) = (open(), alloc(4));
    ok(cuMemFree_v2(memory));
    let code = if is_wrong { cuMemFree_v2(memory) } else { 0 };
    close(stream, &[]);
    code
}

fn free_of_the_middle(is_wrong: bool) -> i32 {
    let (stream, memory) = (open(), alloc(512));
    let code = cuMemFree_v2(if is_wrong { memory + 256 } else { memory });
    let rest = [memory];
    close(stream, if is_wrong { &rest } else { &[] });
    code
}

/// Launches with this shape.
fn shape(threads: u32, shared: u32, opt_in: i32) -> i32 {
    let (store, module, stream) = program();
    let memory = alloc(4);
    // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES.
    let mut code = cuFuncSetAttribute(store, 8, opt_in);
    if code == 0 {
        code = launch(store, (1, threads, shared), &[memory, 7], stream);
    }
    end(module, stream, &[memory]);
    code
}

fn too_many_threads(is_wrong: bool) -> i32 {
    shape(if is_wrong { 2048 } else { 32 }, 0, 0)
}

fn more_threads_than_compiled_for(is_wrong: bool) -> i32 {
    shape(if is_wrong { 128 } else { 64 }, 0, 0)
}

fn no_opt_in(is_wrong: bool) -> i32 {
    shape(32, 64 << 10, if is_wrong { 48 << 10 } else { 64 << 10 })
}

fn too_large_opt_in(is_wrong: bool) -> i32 {
    shape(32, 0, if is_wrong { 164 << 10 } else { 163 << 10 })
}

fn no_parameters(is_wrong: bool) -> i32 {
    let (store, module, stream) = program();
    let memory = alloc(4);
    let code = if is_wrong {
        let none = ptr::null_mut();
        cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, stream, none, none)
    } else {
        launch(store, (1, 1, 0), &[memory, 7], stream)
    };
    end(module, stream, &[memory]);
    code
}

fn no_wait_between_streams(is_wrong: bool) -> i32 {
    let (store, module, first_stream) = program();
    let (second, done, memory) = (stream(), event(), numbers(1, first_stream));
    ok(launch(store, (1, 1, 0), &[memory, 7], first_stream));
    ok(cuEventRecord(done, first_stream));
    if !is_wrong {
        ok(cuStreamWaitEvent(second, done, 0));
    }
    let code = fresh(first(memory, second) == 7);
    ok(cuEventDestroy_v2(done));
    ok(cuStreamDestroy_v2(second));
    end(module, first_stream, &[memory]);
    code
}

/// The event is recorded before the work that it shall stand for.
fn event_recorded_too_early(is_wrong: bool) -> i32 {
    let (store, module, first_stream) = program();
    let (second, done, memory) = (stream(), event(), numbers(1, first_stream));
    if is_wrong {
        ok(cuEventRecord(done, first_stream));
    }
    ok(launch(store, (1, 1, 0), &[memory, 7], first_stream));
    if !is_wrong {
        ok(cuEventRecord(done, first_stream));
    }
    ok(cuStreamWaitEvent(second, done, 0));
    let code = fresh(first(memory, second) == 7);
    ok(cuEventDestroy_v2(done));
    ok(cuStreamDestroy_v2(second));
    end(module, first_stream, &[memory]);
    code
}

fn pinned_memory_changed_too_early(is_wrong: bool) -> i32 {
    let (stream, memory) = (open(), alloc(4));
    let mut host = ptr::null_mut::<u32>();
    ok(cuMemHostAlloc(&mut host, 4, 0));
    // SAFETY: the driver's memory holds one number, which nothing else uses yet.
    unsafe { host.write(7) };
    ok(cuMemcpyHtoDAsync_v2(memory, host, 4, stream));
    if !is_wrong {
        ok(cuStreamSynchronize(stream));
    }
    // SAFETY: as above; the copy is the driver's to delay.
    unsafe { host.write(8) };
    let code = fresh(first(memory, stream) == 7);
    ok(cuMemFreeHost(host));
    close(stream, &[memory]);
    code
}

fn pinned_memory_read_too_early(is_wrong: bool) -> i32 {
    let stream = open();
    let memory = numbers(8, stream) + 28;
    let mut host = ptr::null_mut::<u32>();
    ok(cuMemHostAlloc(&mut host, 4, 0));
    // SAFETY: the driver's memory holds one number, which nothing else uses yet.
    unsafe { host.write(0) };
    ok(cuMemcpyDtoHAsync_v2(host, memory, 4, stream));
    if !is_wrong {
        ok(cuStreamSynchronize(stream));
    }
    // SAFETY: as above; the copy is the driver's to delay.
    let code = fresh(unsafe { host.read_volatile() } == 7);
    ok(cuStreamSynchronize(stream));
    ok(cuMemFreeHost(host));
    close(stream, &[memory - 28]);
    code
}

fn copy_beyond_the_end(is_wrong: bool) -> i32 {
    let (stream, memory, host) = (open(), alloc(1000), [0; 256]);
    let bytes = if is_wrong { 1024 } else { 1000 };
    let code = cuMemcpyHtoDAsync_v2(memory, host.as_ptr(), bytes, stream);
    close(stream, &[memory]);
    code
}

fn destroyed_event(is_wrong: bool) -> i32 {
    let (stream, event) = (open(), event());
    if is_wrong {
        ok(cuEventDestroy_v2(event));
    }
    let code = cuEventRecord(event, stream);
    if !is_wrong {
        ok(cuEventDestroy_v2(event));
    }
    close(stream, &[]);
    code
}

fn destroyed_stream(is_wrong: bool) -> i32 {
    let (store, module, first_stream) = program();
    let (second, memory) = (stream(), alloc(4));
    if is_wrong {
        ok(cuStreamDestroy_v2(second));
    }
    let code = launch(store, (1, 1, 0), &[memory, 7], second);
    if !is_wrong {
        ok(cuStreamDestroy_v2(second));
    }
    end(module, first_stream, &[memory]);
    code
}

fn unloaded_module(is_wrong: bool) -> i32 {
    let (store, module, stream) = program();
    let memory = alloc(4);
    if is_wrong {
        ok(cuModuleUnload(module));
    }
    let code = launch(store, (1, 1, 0), &[memory, 7], stream);
    if !is_wrong {
        ok(cuModuleUnload(module));
    }
    close(stream, &[memory]);
    code
}

fn time_without_clock(is_wrong: bool) -> i32 {
    let stream = open();
    // CU_EVENT_DISABLE_TIMING.
    let flags = if is_wrong { 2 } else { 0 };
    let events = [(); 2].map(|()| made(|event| cuEventCreate(event, flags)));
    events.iter().for_each(|event| ok(cuEventRecord(*event, stream)));
    ok(cuEventSynchronize(events[1]));
    let code = cuEventElapsedTime(&mut 0.0, events[0], events[1]);
    events.iter().for_each(|event| ok(cuEventDestroy_v2(*event)));
    close(stream, &[]);
    code
}

fn time_of_no_record(is_wrong: bool) -> i32 {
    let stream = open();
    let events = [(); 2].map(|()| made(|event| cuEventCreate(event, 0)));
    let recorded = if is_wrong { &events[..1] } else { &events[..] };
    recorded.iter().for_each(|event| ok(cuEventRecord(*event, stream)));
    ok(cuStreamSynchronize(stream));
    let code = cuEventElapsedTime(&mut 0.0, events[0], events[1]);
    events.iter().for_each(|event| ok(cuEventDestroy_v2(*event)));
    close(stream, &[]);
    code
}

fn unwritten_result(is_wrong: bool) -> i32 {
    let (store, module, stream) = program();
    let memory = alloc(4);
    if !is_wrong {
        ok(launch(store, (1, 1, 0), &[memory, 7], stream));
    }
    let code = cuMemcpyDtoHAsync_v2(&mut 0, memory, 4, stream);
    ok(cuStreamSynchronize(stream));
    end(module, stream, &[memory]);
    code
}

fn no_context(is_wrong: bool) -> i32 {
    let stream = open();
    if is_wrong {
        ok(cuCtxSetCurrent(0));
    }
    let mut memory = 0;
    let code = cuMemAlloc_v2(&mut memory, 4);
    ok(cuCtxSetCurrent(made(|context| cuDevicePrimaryCtxRetain(context, 0))));
    ok(cuDevicePrimaryCtxRelease_v2(0));
    let rest = [memory];
    close(stream, if is_wrong { &[] } else { &rest });
    code
}

fn leaks(is_wrong: bool) -> i32 {
    let (stream, memory) = (open(), alloc(1000));
    if !is_wrong {
        close(stream, &[memory]);
    }
    0
}

/// A row of the table.
pub(crate) const fn calls(
    name: &'static str,
    calls: fn(bool) -> i32,
    code: i32,
    says: &'static str,
) -> Plant {
    Plant { name, variables: &["DRIVER_SCHEDULE=late"], program: Program::Calls(calls), code, says }
}

pub(crate) const PLANTS: &[Plant] = &[
    calls(
        "memory that a later kernel still uses",
        use_after_free,
        700,
        "are outside of every allocation",
    ),
    calls("memory that is freed twice", double_free, 1, "cuMemFree_v2: no allocation begins at 0x"),
    calls(
        "memory that is freed by an address within",
        free_of_the_middle,
        1,
        "cuMemFree_v2: no allocation begins at 0x",
    ),
    calls("a block that no GPU takes", too_many_threads, 1, "plant: block [2048, 1, 1]"),
    calls(
        "a block that the kernel does not take",
        more_threads_than_compiled_for,
        701,
        "block [128, 1, 1], and it was compiled for [64, 1, 1]",
    ),
    calls(
        "dynamic shared memory that no attribute allows",
        no_opt_in,
        1,
        "65536 bytes of dynamic shared memory, and 49152 are",
    ),
    calls(
        "more shared memory than the GPU has",
        too_large_opt_in,
        1,
        "attribute 8 = 167936; shared memory has 166912",
    ),
    calls("a launch without the kernel's parameters", no_parameters, 1, "plant: no parameter 0"),
    calls("a stream that does not wait for another", no_wait_between_streams, STALE, ""),
    calls("an event recorded before its work", event_recorded_too_early, STALE, ""),
    calls("pinned memory changed before its copy", pinned_memory_changed_too_early, STALE, ""),
    calls("pinned memory read before its copy", pinned_memory_read_too_early, STALE, ""),
    calls("a copy beyond the end of an allocation", copy_beyond_the_end, 1, "1024 bytes from 0x"),
    calls("an event that is destroyed", destroyed_event, 400, "cuEventRecord: event 0x"),
    calls("a stream that is destroyed", destroyed_stream, 400, "cuLaunchKernel: stream 0x"),
    calls(
        "a function whose module is unloaded",
        unloaded_module,
        400,
        "cuLaunchKernel: function 0x",
    ),
    calls(
        "the time between events without clocks",
        time_without_clock,
        400,
        "the event was made without time",
    ),
    calls(
        "the time to an event that was not recorded",
        time_of_no_record,
        400,
        "the event was never recorded",
    ),
    // Copies may carry bytes that nobody wrote: gaps, and the ends of buffers.
    calls("missed: a result that no kernel wrote", unwritten_result, 0, ""),
    calls("a call without a context", no_context, 201, "no context is current on this thread"),
    calls("what is never given back", leaks, 0, "leak: 1 allocations of 1000 bytes on GPU 0"),
];
