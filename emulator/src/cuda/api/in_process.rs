//! Functions for tests that load this library into their own process. Each test adds a GPU for
//! itself, and queries its state.
#![allow(unsafe_code, non_snake_case)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem;
use std::sync::PoisonError;

use crate::cuda::models;
use crate::cuda::state::lock;
use crate::exec::{Counted, Counts};

/// Adds a GPU; returns its number, or -1. `words` is a model followed by settings, such as `H100
/// SEED=3 MEMORY=4096`; `SEED` has the meaning of the variable `DRIVER_SEED`, and so on.
///
/// # Safety
/// The text must be NUL-terminated.
// SAFETY: no other function of the process has this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn driverAddGpu(words: *const c_char) -> c_int {
    // SAFETY: guaranteed by the caller.
    let words = unsafe { CStr::from_ptr(words) };
    words.to_str().map_or(-1, |words| models::add(words) as c_int)
}

/// Objects of a GPU that have not been destroyed.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Alive {
    graphs: u64,
    streams: u64,
    events: u64,
}

/// Objects of a GPU that have not been destroyed.
// SAFETY: no other function of the process has this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn driverAlive(gpu: c_int) -> Alive {
    let state = lock();
    let mut contexts = state.contexts.values();
    let found = contexts.find(|context| context.device as c_int == gpu);
    found.map_or(Alive::default(), |context| {
        let streams = context.streams.values().filter(|stream| !stream.is_destroyed).count();
        let (graphs, events) = (context.execs.len() as u64, context.events.len() as u64);
        Alive { graphs, streams: streams as u64, events }
    })
}

/// One counted launch.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct CountedLaunch {
    kernel: *const u8,
    kernel_bytes: usize,
    grid: [u32; 3],
    /// All parameters, concatenated.
    parameters: *const u8,
    parameter_bytes: usize,
    counts: Counts,
}

/// Calls `take` with each launch of a GPU that was counted since the previous call of this
/// function, in execution order. The pointers are valid only during the call of `take`.
///
/// # Safety
/// `take` must accept `data`.
// SAFETY: no other function of the process has this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn driverTakeCounted(
    gpu: c_int,
    take: unsafe extern "C" fn(*mut c_void, &CountedLaunch),
    data: *mut c_void,
) {
    let Some(gpu) = usize::try_from(gpu).ok().and_then(models::gpu) else { return };
    let counted = &gpu.settings.counted;
    let counted = mem::take(&mut *counted.lock().unwrap_or_else(PoisonError::into_inner));
    for Counted { kernel, grid, parameters, counts } in counted {
        let launch = CountedLaunch {
            kernel: kernel.as_ptr(),
            kernel_bytes: kernel.len(),
            grid,
            parameters: parameters.as_ptr(),
            parameter_bytes: parameters.len(),
            counts,
        };
        // SAFETY: the caller guarantees that `take` accepts `data`.
        unsafe { take(data, &launch) };
    }
}
