//! Loads the emulated driver into this process, instead of NVIDIA's.
#![allow(unsafe_code)]

use std::env;
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::Path;
use std::slice;
use std::sync::OnceLock;

use device::cuda::nccl_variables;
// Named as a dependency so that cargo builds the dynamic library.
use emulator_nccl as _;
use libloading::Library;

use crate::counted::Counted;
use crate::{Alive, Requests};

/// The emulated driver's functions for tests in the same process.
struct Functions {
    add: unsafe extern "C" fn(*const c_char) -> c_int,
    alive: unsafe extern "C" fn(c_int) -> RawAlive,
    take_counted: unsafe extern "C" fn(c_int, Take, *mut c_void),
}

type Take = unsafe extern "C" fn(*mut c_void, &RawCounted);

/// Same layout as the driver's `Alive`.
#[repr(C)]
struct RawAlive {
    graphs: u64,
    streams: u64,
    events: u64,
}

/// Same layout as the driver's `CountedLaunch`.
#[repr(C)]
struct RawCounted {
    kernel: *const u8,
    kernel_bytes: usize,
    grid: [u32; 3],
    parameters: *const u8,
    parameter_bytes: usize,
    requests: [Requests; 8],
}

/// Loads the emulated driver and the emulated NCCL, once.
pub(crate) fn load() {
    functions();
}

fn functions() -> &'static Functions {
    static FUNCTIONS: OnceLock<Functions> = OnceLock::new();
    FUNCTIONS.get_or_init(|| {
        for (name, value) in nccl_variables(true) {
            // SAFETY: in a test, the only C code that reads the environment is in the libraries
            // loaded below; Rust's own functions take a lock.
            unsafe { env::set_var(name, value) };
        }
        find().unwrap_or_else(|e| panic!("loading the emulated driver failed: {e}"))
    })
}

fn find() -> Result<Functions, libloading::Error> {
    let open = |name: &str| {
        let path = Path::new(env!("LIBRARIES")).join(name);
        // SAFETY: the library is from this workspace, and its initialisers have no requirements.
        // The library stays loaded, and later loads by soname (`libcuda.so`, `libnccl.so.2`) find
        // it.
        let library = unsafe { Library::new(path) }?;
        Ok::<&Library, libloading::Error>(Box::leak(Box::new(library)))
    };
    let driver = open("libemulator.so")?;
    open("libemulator_nccl.so")?;
    // SAFETY: the functions have these types in `emulator/src/cuda/api/in_process.rs`.
    unsafe {
        Ok(Functions {
            add: *driver.get(b"driverAddGpu")?,
            alive: *driver.get(b"driverAlive")?,
            take_counted: *driver.get(b"driverTakeCounted")?,
        })
    }
}

/// Adds a GPU; returns its number.
pub(crate) fn add(words: &str) -> usize {
    let text = CString::new(words).unwrap_or_default();
    // SAFETY: the text is NUL-terminated.
    let number = unsafe { (functions().add)(text.as_ptr()) };
    usize::try_from(number).unwrap_or_else(|_| panic!("invalid GPU model or settings {words:?}"))
}

/// Number of objects of a GPU that are alive.
pub(crate) fn alive(gpu: usize) -> Alive {
    // SAFETY: the function accepts any number.
    let RawAlive { graphs, streams, events } = unsafe { (functions().alive)(gpu as c_int) };
    Alive { graphs, streams, events }
}

/// Takes the launches that were counted.
pub(crate) fn take_counted(gpu: usize) -> Vec<Counted> {
    let mut all: Vec<Counted> = vec![];
    // SAFETY: `take` expects this list as data, and the list outlives the call.
    unsafe { (functions().take_counted)(gpu as c_int, take, (&raw mut all).cast()) };
    all
}

// SAFETY: called only through `take_counted`, with a list.
unsafe extern "C" fn take(list: *mut c_void, raw: &RawCounted) {
    // SAFETY: the list is valid; texts and parameters are valid during this call.
    let (list, kernel, parameters) = unsafe {
        (
            &mut *list.cast::<Vec<Counted>>(),
            slice::from_raw_parts(raw.kernel, raw.kernel_bytes),
            slice::from_raw_parts(raw.parameters, raw.parameter_bytes),
        )
    };
    list.push(Counted {
        kernel: String::from_utf8_lossy(kernel).into_owned(),
        grid: raw.grid,
        parameters: parameters.to_vec(),
        requests: raw.requests,
    });
}
