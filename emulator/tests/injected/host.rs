//! Mistakes in programs: devices, memory, modules, launches, streams and events.
#![allow(unsafe_code)]

use std::ptr;

use crate::cuda::*;
use crate::{FaultProgram, Program};

/// Exit code of a program that read old data because it did not wait, although no call returned an
/// error.
pub(crate) const STALE: i32 = -1;

/// The exit code of a program: 0 if it reads the expected data, else [`STALE`].
pub(crate) fn fresh(is_fresh: bool) -> i32 {
    if is_fresh { 0 } else { STALE }
}

/// Launches the kernel with these blocks, threads and shared memory.
fn shape(gpu: &Gpu, [blocks, threads]: [[u32; 3]; 2], shared: u32) -> i32 {
    let values = [gpu.alloc(4), 1];
    let mut pointers = values.each_ref().map(|value| (&raw const *value).cast_mut().cast());
    let ([gx, gy, gz], [bx, by, bz]) = (blocks, threads);
    let (list, none) = (pointers.as_mut_ptr(), ptr::null_mut());
    cuLaunchKernel(gpu.store, gx, gy, gz, bx, by, bz, shared, gpu.stream, list, none)
}

/// Enqueues work on a second stream, which should wait for work on the first stream. Returns 0 if
/// the second stream reads the number that the first one stored, else [`STALE`].
fn second_stream(gpu: &Gpu, record: usize, waits: bool) -> i32 {
    let (second, done, memory) = (gpu.new_stream(), gpu.event(2), gpu.numbers(&[0]));
    if record == 0 {
        ok(cuEventRecord(done, gpu.stream));
    }
    gpu.put(memory, 7, gpu.stream);
    if record == 1 {
        ok(cuEventRecord(done, gpu.stream));
    }
    if waits {
        ok(cuStreamWaitEvent(second, done, 0));
    }
    let mut number = 0;
    ok(cuMemcpyDtoHAsync_v2(&mut number, memory, 4, second));
    fresh(number == 7)
}

/// A program for the table, which makes calls on an open GPU.
pub(crate) const fn calls(
    name: &'static str,
    code: i32,
    says: &'static str,
    calls: fn(&Gpu, bool) -> i32,
) -> FaultProgram {
    FaultProgram {
        name,
        variables: &["DRIVER_SCHEDULE=late"],
        program: Program::Calls(calls),
        code,
        says,
    }
}

const fn host_program(
    name: &'static str,
    code: i32,
    says: &'static str,
    calls: fn(bool) -> i32,
) -> FaultProgram {
    FaultProgram { name, variables: &[], program: Program::Alone(calls), code, says }
}

const ONE: [u32; 3] = [1; 3];

/// Sets an environment variable, before the driver starts.
fn set(name: &str, value: &str) {
    // SAFETY: no other thread accesses the environment yet.
    unsafe { std::env::set_var(name, value) }
}

pub(crate) const PROGRAMS: &[FaultProgram] = &[
    host_program("a call before the first", 3, "cuDeviceGet: before cuInit", |wrong| {
        if !wrong {
            ok(cuInit(0));
        }
        cuDeviceGet(&mut 0, 0)
    }),
    host_program("a context that is not retained", 201, "0 has no retained context", |wrong| {
        ok(cuInit(0));
        if !wrong {
            made(|context| cuDevicePrimaryCtxRetain(context, 0));
        }
        cuDevicePrimaryCtxRelease_v2(0)
    }),
    host_program(
        "a context that was released",
        709,
        "this thread's current context was ",
        |wrong| {
            ok(cuInit(0));
            ok(cuCtxSetCurrent(made(|context| cuDevicePrimaryCtxRetain(context, 0))));
            if wrong {
                ok(cuDevicePrimaryCtxRelease_v2(0));
            }
            cuCtxSynchronize()
        },
    ),
    host_program("a released context made current", 201, " was released", |wrong| {
        ok(cuInit(0));
        let context = made(|context| cuDevicePrimaryCtxRetain(context, 0));
        if wrong {
            ok(cuDevicePrimaryCtxRelease_v2(0));
        }
        cuCtxSetCurrent(context)
    }),
    host_program("a machine without a GPU", 100, "", |wrong| {
        set("DRIVER_GPUS", if wrong { "" } else { "A100" });
        cuInit(0)
    }),
    host_program(
        "objects left at the end of the process",
        0,
        "leak: 1 streams on GPU 0",
        |wrong| {
            ok(cuInit(0));
            ok(cuCtxSetCurrent(made(|context| cuDevicePrimaryCtxRetain(context, 0))));
            if wrong {
                made(|stream| cuStreamCreate(stream, 1));
            }
            0
        },
    ),
    host_program("a trace of calls with their results", 101, "there is no device 7", |wrong| {
        let path = std::env::temp_dir().join(format!("trace.{}", std::process::id()));
        set("DRIVER_TRACE", path.to_str().expect("a path"));
        ok(cuInit(0));
        let code = cuDeviceGet(&mut 0, if wrong { 7 } else { 0 });
        let trace = std::fs::read_to_string(&path).expect("a trace");
        std::fs::remove_file(&path).expect("a trace");
        assert_eq!(trace, format!("cuInit 0\ncuDeviceGet {code}\n"));
        code
    }),
    calls("a call without a context", 201, "no context is current on this", |gpu, wrong| {
        ok(cuCtxSetCurrent(if wrong { 0 } else { gpu.context }));
        cuCtxSynchronize()
    }),
    calls("flags that are invalid", 1, "cuInit: flags 1", |_, wrong| cuInit(wrong.into())),
    calls("a null pointer for a name", 1, "the pointer for the name is null", |_, wrong| {
        cuDeviceGetName([0; 9].as_mut_ptr(), if wrong { 0 } else { 9 }, 0)
    }),
    calls("a null pointer for a result", 1, "the pointer for a result is null", |_, wrong| {
        cuCtxGetDevice(if wrong { ptr::null_mut() } else { &mut 0 })
    }),
    calls("an attribute of a later GPU", 1, "attribute 999 is not modelled", |_, wrong| {
        cuDeviceGetAttribute(&mut 0, if wrong { 999 } else { 16 }, 0)
    }),
    calls("an allocation of no bytes", 1, "an allocation of 0 bytes", |gpu, wrong| {
        if wrong { cuMemAlloc_v2(&mut 0, 0) } else { fresh(gpu.alloc(1) != 0) }
    }),
    calls("memory that a later kernel uses", 700, "are outside of every all", |gpu, wrong| {
        let memory = gpu.leave(gpu.alloc(4));
        let free = || ok(cuMemFree_v2(memory));
        if wrong {
            free();
        }
        gpu.put(memory, 7, gpu.stream);
        if !wrong {
            free();
        }
        cuStreamSynchronize(gpu.stream)
    }),
    calls("memory freed by an address inside it", 1, "no allocation begins at 0x", |gpu, wrong| {
        let memory = gpu.alloc(512);
        cuMemFree_v2(if wrong { memory + 256 } else { gpu.leave(memory) })
    }),
    calls("pinned memory that is freed twice", 1, "no pinned memory begins at", |gpu, wrong| {
        let host = gpu.pinned();
        ok(cuMemFreeHost(host));
        gpu.leave(host.expose_provenance() as u64);
        if wrong { cuMemFreeHost(host) } else { 0 }
    }),
    calls("an address of unpinned memory", 1, "is not pinned, or flags 0", |gpu, wrong| {
        let host = if wrong { [7].as_ptr() } else { gpu.pinned().cast_const() };
        cuMemHostGetDevicePointer_v2(&mut 0, host, 0)
    }),
    calls("a copy beyond the end", 1, "are not inside an allocation", |gpu, wrong| {
        let bytes = if wrong { 1024 } else { 1000 };
        cuMemcpyHtoDAsync_v2(gpu.alloc(1000), [0; 256].as_ptr(), bytes, gpu.stream)
    }),
    calls("a copy beyond pinned memory", 1, "of pinned memory, but only 4 ", |gpu, wrong| {
        let (host, memory) = (gpu.pinned(), gpu.alloc(8));
        // SAFETY: nothing else uses the number.
        unsafe { host.write(7) };
        cuMemcpyHtoDAsync_v2(memory, host, if wrong { 8 } else { 4 }, gpu.stream)
    }),
    calls("pinned memory changed before its copy", STALE, "", |gpu, wrong| {
        let (host, memory) = (gpu.pinned(), gpu.alloc(4));
        // SAFETY: pinned memory for one number; the driver may delay the copy.
        unsafe { host.write(7) };
        ok(cuMemcpyHtoDAsync_v2(memory, host, 4, gpu.stream));
        if !wrong {
            ok(cuStreamSynchronize(gpu.stream));
        }
        // SAFETY: as above.
        unsafe { host.write(8) };
        fresh(gpu.read(memory, 1) == [7])
    }),
    calls("pinned memory read before its copy", STALE, "", |gpu, wrong| {
        let (host, memory) = (gpu.pinned(), gpu.numbers(&[7]));
        // SAFETY: pinned memory for one number; the driver may delay the copy.
        unsafe { host.write(0) };
        ok(cuMemcpyDtoHAsync_v2(host, memory, 4, gpu.stream));
        if !wrong {
            ok(cuStreamSynchronize(gpu.stream));
        }
        // SAFETY: as above.
        fresh(unsafe { host.read_volatile() } == 7)
    }),
    calls("an image for a different GPU", 209, "", |gpu, wrong| {
        let text = crate::kernels::text_of("");
        gpu.load(if wrong { "\x7fELF" } else { &text }).err().unwrap_or(0)
    }),
    calls("PTX that is newer than the driver", 222, "", |gpu, wrong| {
        let version = if wrong { ".version 9.0" } else { ".version 8.2" };
        let text = crate::kernels::text_of("").replace(".version 8.0", version);
        gpu.load(&text).err().unwrap_or(0)
    }),
    calls("a function that the module lacks", 500, "", |gpu, wrong| {
        let name = if wrong { c"missing" } else { c"plant" };
        cuModuleGetFunction(&mut 0, gpu.module, name.as_ptr())
    }),
    calls("a function without a name", 1, "a function without a name", |gpu, wrong| {
        let name = if wrong { ptr::null() } else { c"plant".as_ptr() };
        cuModuleGetFunction(&mut 0, gpu.module, name)
    }),
    calls("a module that a graph uses", 0, "1 graphs still use module 0xd000", |gpu, wrong| {
        let memory = gpu.alloc(4);
        gpu.begin();
        gpu.put(memory, 7, gpu.stream);
        let exec = gpu.end();
        if !wrong {
            ok(cuGraphExecDestroy(gpu.leave(exec)));
        }
        cuModuleUnload(gpu.leave(gpu.module))
    }),
    calls("a grid beyond the limits", 1, "plant: grid [1, 65536, 1]", |gpu, wrong| {
        shape(gpu, [if wrong { [1, 65536, 1] } else { [1, 3, 1] }, ONE], 0)
    }),
    calls("a block beyond the limits", 1, "plant: block [1, 1, 65]", |gpu, wrong| {
        shape(gpu, [ONE, if wrong { [1, 1, 65] } else { [1, 1, 64] }], 0)
    }),
    calls("a block beyond the kernel's limit", 701, "it was compiled for [64", |gpu, wrong| {
        shape(gpu, [ONE, if wrong { [128, 1, 1] } else { [64, 1, 1] }], 0)
    }),
    calls("shared memory that no attribute allows", 1, "but 49152 are allowed", |gpu, wrong| {
        ok(cuFuncSetAttribute(gpu.store, 8, if wrong { 48 << 10 } else { 64 << 10 }));
        shape(gpu, [ONE; 2], 64 << 10)
    }),
    calls("more shared memory than the GPU has", 1, "the maximum is 166912", |gpu, wrong| {
        cuFuncSetAttribute(gpu.store, 8, if wrong { 164 << 10 } else { 163 << 10 })
    }),
    calls("a launch without its parameters", 1, "plant: no parameter 0", |gpu, wrong| {
        if !wrong {
            return shape(gpu, [ONE; 2], 0);
        }
        let none = ptr::null_mut();
        cuLaunchKernel(gpu.store, 1, 1, 1, 1, 1, 1, 0, gpu.stream, none, none)
    }),
    calls("parameters in one piece", 801, "`extra` are not modelled", |gpu, wrong| {
        if !wrong {
            return shape(gpu, [ONE; 2], 0);
        }
        let (none, extra) = (ptr::null_mut(), &mut ptr::null_mut());
        cuLaunchKernel(gpu.store, 1, 1, 1, 1, 1, 1, 0, gpu.stream, none, extra)
    }),
    calls("a blocking stream", 801, "a blocking stream, for which", |gpu, wrong| {
        if wrong { cuStreamCreate(&mut 0, 0) } else { fresh(gpu.new_stream() != 0) }
    }),
    calls("the default stream", 400, "the default stream, which is not m", |gpu, wrong| {
        cuEventRecord(gpu.event(2), if wrong { 0 } else { gpu.stream })
    }),
    calls("an invalid handle", 400, "event 0xffffffffffffffff never", |gpu, wrong| {
        cuEventRecord(if wrong { u64::MAX } else { gpu.event(2) }, gpu.stream)
    }),
    calls("a handle that was destroyed", 400, "event 0xd0|was destroyed", |gpu, wrong| {
        let event = gpu.event(2);
        if wrong {
            ok(cuEventDestroy_v2(gpu.leave(event)));
        }
        cuEventRecord(event, gpu.stream)
    }),
    calls("the time between events without", 400, "created without timing", |gpu, wrong| {
        let events = [(); 2].map(|()| gpu.event(if wrong { 2 } else { 0 }));
        events.iter().for_each(|event| ok(cuEventRecord(*event, gpu.stream)));
        ok(cuEventSynchronize(events[1]));
        cuEventElapsedTime(&mut 0.0, events[0], events[1])
    }),
    calls("the time of an event never recorded", 400, "was never recorded", |gpu, wrong| {
        let events = [(); 2].map(|()| gpu.event(0));
        let recorded = if wrong { &events[..1] } else { &events };
        recorded.iter().for_each(|event| ok(cuEventRecord(*event, gpu.stream)));
        ok(cuStreamSynchronize(gpu.stream));
        cuEventElapsedTime(&mut 0.0, events[0], events[1])
    }),
    calls("a stream that does not wait for another", STALE, "", |gpu, wrong| {
        second_stream(gpu, 1, !wrong)
    }),
    calls("an event recorded before its work", STALE, "", |gpu, wrong| {
        second_stream(gpu, usize::from(!wrong), true)
    }),
    calls("an operation that fails", 719, "fault: operation failed (719", |gpu, wrong| {
        let result = ptr::without_provenance_mut(if wrong { 719 } else { 0 });
        ok(driverEnqueue(gpu.stream, c"operation".as_ptr(), run, release, result));
        cuStreamSynchronize(gpu.stream)
    }),
    calls("an operation without a name", 1, "an operation without a name", |gpu, wrong| {
        let name = if wrong { ptr::null() } else { c"operation".as_ptr() };
        driverEnqueue(gpu.stream, name, run, release, ptr::null_mut())
    }),
    calls("objects that are never destroyed", 0, LEAKS, |gpu, wrong| {
        gpu.begin();
        let mut graph = made(|graph| cuStreamEndCapture(gpu.stream, graph));
        let exec = made(|exec| cuGraphInstantiateWithFlags(exec, graph, 0));
        let (stream, memory, host) = (gpu.new_stream(), gpu.alloc(100), gpu.pinned());
        let event = gpu.event(2);
        if wrong {
            let host = host.expose_provenance() as u64;
            for object in [stream, event, memory, gpu.module, host] {
                gpu.leave(object);
            }
        } else {
            ok(cuGraphExecDestroy(exec));
            ok(cuGraphDestroy(std::mem::take(&mut graph)));
        }
        0
    }),
];

const LEAKS: &str = "leak: 1 streams on GPU 0|leak: 1 events on GPU 0|leak: 1 graphs on GPU 0|\
                     leak: 1 execs on GPU 0|leak: 1 modules on GPU 0|\
                     leak: 1 allocations of 100 bytes on GPU 0|\
                     leak: 1 pinned allocations of 4 bytes on GPU 0";

/// A callback that returns the error code passed as its data.
pub(crate) extern "C" fn run(data: *mut std::ffi::c_void) -> i32 {
    data.addr() as i32
}

pub(crate) extern "C" fn release(_: *mut std::ffi::c_void) {}
