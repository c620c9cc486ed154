//! The driver's C functions, and helpers that programs use.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_void};
use std::ptr;

// Links the library of this crate, which has the functions below.
use emulator as _;

/// A callback of an external operation.
pub(crate) type Call<T> = unsafe extern "C" fn(*mut c_void) -> T;

/// Declares C functions that return an error code.
macro_rules! functions {
    ($(fn $name:ident($($kind:ty),*);)*) => {
        // SAFETY: the declarations match the documentation of the driver's functions. Tests pass
        // valid pointers, and the driver checks handles and device addresses.
        unsafe extern "C" {
            $(pub(crate) safe fn $name($(_: $kind),*) -> i32;)*
        }
    };
}

functions! {
    fn cuInit(u32);
    fn cuDeviceGet(&mut i32, i32);
    fn cuDeviceGetName(*mut u8, i32, i32);
    fn cuDeviceGetAttribute(&mut i32, i32, i32);
    fn cuDevicePrimaryCtxRetain(&mut u64, i32);
    fn cuDevicePrimaryCtxRelease_v2(i32);
    fn cuCtxGetDevice(*mut i32);
    fn cuCtxSetCurrent(u64);
    fn cuCtxSynchronize();
    fn cuModuleLoadData(&mut u64, *const c_char);
    fn cuModuleLoadDataEx(&mut u64, *const c_char, u32, *const i32, *mut *mut c_void);
    fn cuModuleUnload(u64);
    fn cuModuleGetFunction(&mut u64, u64, *const c_char);
    fn cuFuncSetAttribute(u64, i32, i32);
    fn cuLaunchKernel(u64, u32, u32, u32, u32, u32, u32, u32, u64, *mut *mut c_void,
        *mut *mut c_void);
    fn cuMemAlloc_v2(&mut u64, usize);
    fn cuMemFree_v2(u64);
    fn cuMemHostAlloc(&mut *mut u32, usize, u32);
    fn cuMemHostGetDevicePointer_v2(&mut u64, *const u32, u32);
    fn cuMemFreeHost(*mut u32);
    fn cuMemcpyHtoDAsync_v2(u64, *const u32, usize, u64);
    fn cuMemcpyDtoHAsync_v2(*mut u32, u64, usize, u64);
    fn cuMemcpyDtoDAsync_v2(u64, u64, usize, u64);
    fn cuStreamCreate(&mut u64, u32);
    fn cuStreamDestroy_v2(u64);
    fn cuStreamQuery(u64);
    fn cuStreamSynchronize(u64);
    fn cuStreamWaitEvent(u64, u64, u32);
    fn cuStreamBeginCapture_v2(u64, i32);
    fn cuStreamEndCapture(u64, &mut u64);
    fn cuEventCreate(&mut u64, u32);
    fn cuEventDestroy_v2(u64);
    fn cuEventRecord(u64, u64);
    fn cuEventQuery(u64);
    fn cuEventSynchronize(u64);
    fn cuEventElapsedTime(&mut f32, u64, u64);
    fn cuGraphInstantiateWithFlags(&mut u64, u64, u64);
    fn cuGraphDestroy(u64);
    fn cuGraphUpload(u64, u64);
    fn cuGraphLaunch(u64, u64);
    fn cuGraphExecDestroy(u64);
    fn cuTensorMapEncodeTiled(*mut u64, i32, u32, u64, *const u64, *const u64, *const u32,
        *const u32, i32, i32, i32, i32);
    fn driverEnqueue(u64, *const c_char, Call<i32>, Call<()>, *mut c_void);
}

/// A kernel that stores a number, in blocks of up to 64 threads.
const STORE: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry plant(.param .u64 to, .param .u32 value)
.maxntid 64, 1, 1
{
    .reg .b32 %r<2>;
    .reg .b64 %d<2>;
    ld.param.u64 %d1, [to];
    ld.param.u32 %r1, [value];
    st.global.u32 [%d1], %r1;
    ret;
}
";

#[track_caller]
pub(crate) fn ok(code: i32) {
    assert_eq!(code, 0);
}

/// Calls a function that must succeed; returns its output value.
#[track_caller]
pub(crate) fn made<T: Default>(make: impl FnOnce(&mut T) -> i32) -> T {
    let mut value = T::default();
    ok(make(&mut value));
    value
}

/// An object, and the function that destroys it.
type Object = (fn(u64) -> i32, u64);

/// The first GPU, with a context that is current on this thread, a stream and a kernel.
/// [`Gpu::close`] destroys all objects that were created through it.
pub(crate) struct Gpu {
    pub(crate) context: u64,
    pub(crate) stream: u64,
    pub(crate) module: u64,
    /// The kernel that stores a 32-bit number at an address.
    pub(crate) store: u64,
    made: RefCell<Vec<Object>>,
}

impl Gpu {
    pub(crate) fn open() -> Self {
        ok(cuInit(0));
        let context = made(|context| cuDevicePrimaryCtxRetain(context, 0));
        ok(cuCtxSetCurrent(context));
        let mut gpu = Self { context, stream: 0, module: 0, store: 0, made: RefCell::default() };
        gpu.stream = gpu.new_stream();
        gpu.module = gpu.load(STORE).expect("a module");
        gpu.store = function(gpu.module);
        gpu
    }

    /// Destroys all objects, in reverse order of creation; errors of a failed device are ignored.
    pub(crate) fn close(self) {
        cuCtxSetCurrent(self.context);
        cuCtxSynchronize();
        for (give_up, object) in self.made.take().into_iter().rev() {
            give_up(object);
        }
        cuDevicePrimaryCtxRelease_v2(0);
    }

    fn keep(&self, give_up: fn(u64) -> i32, object: u64) -> u64 {
        self.made.borrow_mut().push((give_up, object));
        object
    }

    /// Excludes an object from [`Gpu::close`], because the program destroys it.
    pub(crate) fn leave(&self, object: u64) -> u64 {
        self.made.borrow_mut().retain(|(_, other)| *other != object);
        object
    }

    /// A new non-blocking stream.
    pub(crate) fn new_stream(&self) -> u64 {
        self.keep(|stream| cuStreamDestroy_v2(stream), made(|stream| cuStreamCreate(stream, 1)))
    }

    /// An event; flag 2 disables timing.
    pub(crate) fn event(&self, flags: u32) -> u64 {
        self.keep(|event| cuEventDestroy_v2(event), made(|event| cuEventCreate(event, flags)))
    }

    pub(crate) fn alloc(&self, bytes: usize) -> u64 {
        self.keep(|at| cuMemFree_v2(at), made(|address| cuMemAlloc_v2(address, bytes)))
    }

    /// Pinned memory for one number.
    pub(crate) fn pinned(&self) -> *mut u32 {
        let mut host = ptr::null_mut();
        ok(cuMemHostAlloc(&mut host, 4, 0));
        let give_up = |host: u64| cuMemFreeHost(ptr::with_exposed_provenance_mut(host as usize));
        self.keep(give_up, host.expose_provenance() as u64);
        host
    }

    /// Loads a module with the kernel `plant`; returns the module or the error code.
    pub(crate) fn load(&self, ptx: &str) -> Result<u64, i32> {
        let (text, mut module) = (CString::new(ptx).expect("no zero"), 0);
        match cuModuleLoadData(&mut module, text.as_ptr()) {
            0 => Ok(self.keep(|module| cuModuleUnload(module), module)),
            code => Err(code),
        }
    }

    /// Device memory with these numbers.
    pub(crate) fn numbers(&self, numbers: &[u32]) -> u64 {
        let (memory, bytes) = (self.alloc(4 * numbers.len()), 4 * numbers.len());
        ok(cuMemcpyHtoDAsync_v2(memory, numbers.as_ptr(), bytes, self.stream));
        ok(cuStreamSynchronize(self.stream));
        memory
    }

    /// Reads numbers from device memory, after the work in the stream.
    pub(crate) fn read(&self, memory: u64, count: usize) -> Vec<u32> {
        let mut numbers = vec![0; count];
        ok(cuMemcpyDtoHAsync_v2(numbers.as_mut_ptr(), memory, 4 * count, self.stream));
        numbers
    }

    /// Enqueues a store of a number.
    pub(crate) fn put(&self, memory: u64, number: u64, stream: u64) {
        ok(launch(self.store, (1, 1, 0), &[memory, number], stream));
    }

    pub(crate) fn begin(&self) {
        ok(cuStreamBeginCapture_v2(self.stream, 1));
    }

    /// Ends a capture; returns the executable graph.
    pub(crate) fn end(&self) -> u64 {
        let graph = made(|graph| cuStreamEndCapture(self.stream, graph));
        let exec = made(|exec| cuGraphInstantiateWithFlags(exec, graph, 0));
        ok(cuGraphDestroy(graph));
        self.keep(|exec| cuGraphExecDestroy(exec), exec)
    }

    /// Ends a capture and discards its graph; returns the error code.
    pub(crate) fn abandon(&self, stream: u64) -> i32 {
        let mut graph = 0;
        let code = cuStreamEndCapture(stream, &mut graph);
        if graph != 0 {
            ok(cuGraphDestroy(graph));
        }
        code
    }

    /// Makes subsequent work in `later` wait for the current work in `first`.
    pub(crate) fn order(&self, first: u64, later: u64) {
        let event = self.event(2);
        ok(cuEventRecord(event, first));
        ok(cuStreamWaitEvent(later, event, 0));
    }
}

/// The kernel `plant` of a module.
pub(crate) fn function(module: u64) -> u64 {
    made(|function| cuModuleGetFunction(function, module, c"plant".as_ptr()))
}

/// Launches a kernel. Each parameter is passed in 8 bytes; the driver reads the declared size.
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
