//! The driver's functions as C declares them, and what programs make of them.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_void};
use std::ptr;

// The functions are found in the library of this crate.
use driver as _;

// SAFETY: the functions are the driver's, with the arguments that its documentation names. Plants
// give them places that they may write, and the driver checks handles and device addresses.
unsafe extern "C" {
    pub(crate) safe fn cuInit(flags: u32) -> i32;
    pub(crate) safe fn cuDevicePrimaryCtxRetain(context: &mut u64, device: i32) -> i32;
    pub(crate) safe fn cuDevicePrimaryCtxRelease_v2(device: i32) -> i32;
    pub(crate) safe fn cuCtxSetCurrent(context: u64) -> i32;
    pub(crate) safe fn cuCtxSynchronize() -> i32;
    pub(crate) safe fn cuModuleLoadData(module: &mut u64, image: *const c_char) -> i32;
    pub(crate) safe fn cuModuleLoadDataEx(
        module: &mut u64,
        image: *const c_char,
        count: u32,
        options: *const i32,
        values: *mut *mut c_void,
    ) -> i32;
    pub(crate) safe fn cuModuleUnload(module: u64) -> i32;
    pub(crate) safe fn cuModuleGetFunction(
        function: &mut u64,
        module: u64,
        name: *const c_char,
    ) -> i32;
    pub(crate) safe fn cuFuncSetAttribute(function: u64, attribute: i32, value: i32) -> i32;
    pub(crate) safe fn cuLaunchKernel(
        function: u64,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        shared: u32,
        stream: u64,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> i32;
    pub(crate) safe fn cuMemAlloc_v2(address: &mut u64, bytes: usize) -> i32;
    pub(crate) safe fn cuMemFree_v2(address: u64) -> i32;
    pub(crate) safe fn cuMemHostAlloc(address: &mut *mut u32, bytes: usize, flags: u32) -> i32;
    pub(crate) safe fn cuMemFreeHost(address: *mut u32) -> i32;
    pub(crate) safe fn cuMemcpyHtoDAsync_v2(
        to: u64,
        from: *const u32,
        bytes: usize,
        stream: u64,
    ) -> i32;
    pub(crate) safe fn cuMemcpyDtoHAsync_v2(
        to: *mut u32,
        from: u64,
        bytes: usize,
        stream: u64,
    ) -> i32;
    pub(crate) safe fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: u64) -> i32;
    pub(crate) safe fn cuStreamCreate(stream: &mut u64, flags: u32) -> i32;
    pub(crate) safe fn cuStreamDestroy_v2(stream: u64) -> i32;
    pub(crate) safe fn cuStreamSynchronize(stream: u64) -> i32;
    pub(crate) safe fn cuStreamWaitEvent(stream: u64, event: u64, flags: u32) -> i32;
    pub(crate) safe fn cuStreamBeginCapture_v2(stream: u64, mode: i32) -> i32;
    pub(crate) safe fn cuStreamEndCapture(stream: u64, graph: &mut u64) -> i32;
    pub(crate) safe fn cuEventCreate(event: &mut u64, flags: u32) -> i32;
    pub(crate) safe fn cuEventDestroy_v2(event: u64) -> i32;
    pub(crate) safe fn cuEventRecord(event: u64, stream: u64) -> i32;
    pub(crate) safe fn cuEventSynchronize(event: u64) -> i32;
    pub(crate) safe fn cuEventElapsedTime(milliseconds: &mut f32, start: u64, end: u64) -> i32;
    pub(crate) safe fn cuGraphInstantiateWithFlags(exec: &mut u64, graph: u64, flags: u64) -> i32;
    pub(crate) safe fn cuGraphDestroy(graph: u64) -> i32;
    pub(crate) safe fn cuGraphLaunch(exec: u64, stream: u64) -> i32;
    pub(crate) safe fn cuGraphExecDestroy(exec: u64) -> i32;
    pub(crate) safe fn cuTensorMapEncodeTiled(
        map: &mut [u64; 16],
        kind: i32,
        rank: u32,
        address: *const c_void,
        extents: *const u64,
        strides: *const u64,
        tile: *const u32,
        steps: *const u32,
        interleave: i32,
        swizzle: i32,
        promotion: i32,
        fill: i32,
    ) -> i32;
}

#[track_caller]
pub(crate) fn ok(code: i32) {
    assert_eq!(code, 0);
}

/// A value that a function makes.
#[track_caller]
pub(crate) fn made<T: Default>(make: impl FnOnce(&mut T) -> i32) -> T {
    let mut value = T::default();
    ok(make(&mut value));
    value
}

/// Starts the driver, with the context of the first GPU current on this thread, and makes a stream
/// that the null stream does not wait for.
pub(crate) fn open() -> u64 {
    ok(cuInit(0));
    let context = made(|context| cuDevicePrimaryCtxRetain(context, 0));
    ok(cuCtxSetCurrent(context));
    stream()
}

/// Gives the stream of `open` up, and these allocations.
pub(crate) fn close(stream: u64, memory: &[u64]) {
    ok(cuStreamSynchronize(stream));
    memory.iter().for_each(|address| ok(cuMemFree_v2(*address)));
    ok(cuStreamDestroy_v2(stream));
    ok(cuDevicePrimaryCtxRelease_v2(0));
}

pub(crate) fn stream() -> u64 {
    made(|stream| cuStreamCreate(stream, 1))
}

pub(crate) fn event() -> u64 {
    made(|event| cuEventCreate(event, 2))
}

pub(crate) fn alloc(bytes: usize) -> u64 {
    made(|address| cuMemAlloc_v2(address, bytes))
}

/// Device memory with the numbers from zero on.
pub(crate) fn numbers(count: u32, stream: u64) -> u64 {
    let (host, bytes): (Vec<u32>, _) = ((0..count).collect(), 4 * count as usize);
    let memory = alloc(bytes);
    ok(cuMemcpyHtoDAsync_v2(memory, host.as_ptr(), bytes, stream));
    ok(cuStreamSynchronize(stream));
    memory
}

/// The first number of device memory, behind what the stream holds.
pub(crate) fn first(memory: u64, stream: u64) -> u32 {
    let mut value = 0;
    ok(cuMemcpyDtoHAsync_v2(&mut value, memory, 4, stream));
    ok(cuStreamSynchronize(stream));
    value
}

/// The kernel `plant` of a module.
pub(crate) fn function(module: u64) -> u64 {
    made(|function| cuModuleGetFunction(function, module, c"plant".as_ptr()))
}

/// A module with the kernel `plant`.
pub(crate) fn module(ptx: &str) -> u64 {
    let text = CString::new(ptx).expect("no zero");
    made(|module| cuModuleLoadData(module, text.as_ptr()))
}

/// Launches a kernel with parameters, each in 8 bytes of which it takes what it declares.
pub(crate) fn launch(
    function: u64,
    (blocks, threads, shared): (u32, u32, u32),
    parameters: &[u64],
    stream: u64,
) -> i32 {
    let pointers = parameters.iter().map(|value| (&raw const *value).cast_mut().cast());
    let mut pointers: Vec<*mut c_void> = pointers.collect();
    let (list, none) = (pointers.as_mut_ptr(), ptr::null_mut());
    cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, shared, stream, list, none)
}
