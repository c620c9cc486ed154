//! Functions that CUDA does not have: for the emulated NCCL, and for programs that declare which
//! bytes their operations access.
#![allow(unsafe_code, non_snake_case)]

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::{ptr, slice};

use super::api;
use crate::cuda::capture;
use crate::cuda::errors::*;
use crate::cuda::state::{Context, current, lock};
use crate::cuda::work::{External, Handle, Work};
use crate::exec::Declared;

thread_local! {
    /// Byte ranges that this thread's next operation may access.
    static DECLARED: Cell<Option<Vec<Declared>>> = const { Cell::new(None) };
}

/// Removes and returns the ranges that were declared for the current operation.
pub(super) fn take_declared() -> Option<Vec<Declared>> {
    DECLARED.try_with(Cell::take).unwrap_or(None)
}

/// Rejects declared ranges that are not inside an allocation.
pub(super) fn check_declared(context: &Context, declared: Option<&[Declared]>) -> Outcome {
    let outside = |one: &&Declared| context.memory.find(one.first, one.bytes as usize).is_none();
    match declared.unwrap_or_default().iter().find(outside) {
        None => Ok(()),
        Some(one) => Err(misuse(
            INVALID_VALUE,
            format!("{} declared bytes from {:#x} are not in one allocation", one.bytes, one.first),
        )),
    }
}

/// Declares all ranges that this thread's next launch or all-reduce may access. Accesses outside
/// these ranges are errors; a graph is rejected if two of its operations race according to their
/// declarations.
///
/// # Safety
/// `list` must point to `count` entries.
// SAFETY: no other function of the process has this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn driverDeclare(list: *const Declared, count: usize) {
    // SAFETY: guaranteed by the caller.
    let declared = if count == 0 { &[] } else { unsafe { slice::from_raw_parts(list, count) } };
    let declared = declared.iter().copied().filter(|one| one.bytes > 0).collect();
    // Fails only on a thread that is exiting, which launches nothing.
    let _ = DECLARED.try_with(|next| next.set(Some(declared)));
}

api! {
    /// Enqueues or captures an operation. Each execution calls `run(data)`; if it returns an error
    /// code other than 0, all later API calls return this code. `release(data)` is called once,
    /// after the last call of `run`, unless `driverEnqueue` fails.
    fn driverEnqueue(
        stream: Handle,
        name: *const c_char,
        run: unsafe extern "C" fn(*mut c_void) -> c_int,
        release: unsafe extern "C" fn(*mut c_void),
        data: *mut c_void,
    ) {
        if name.is_null() {
            return Err(misuse(INVALID_VALUE, "an operation without a name"));
        }
        // SAFETY: the caller passes a NUL-terminated text.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        let mut state = lock();
        let context = state.healthy()?;
        capture::captured(context, stream)?;
        let declared = take_declared();
        // From here on the call cannot fail.
        let data = data.expose_provenance();
        let external = External { name, run, release, data, declared };
        capture::submit(context, stream, Work::External(external))
    }
}

/// Host address of a device range; null if the range is not inside one allocation.
// SAFETY: no other function of the process has this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn driverAddress(device: u64, bytes: u64) -> *mut u8 {
    let state = lock();
    let mut found = state.contexts.values().filter_map(|c| c.memory.find(device, bytes as usize));
    found.next().map_or(ptr::null_mut(), |(allocation, at)| allocation.host().wrapping_add(at))
}

/// Marks a device range as written.
// SAFETY: no other function of the process has this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn driverSetWritten(device: u64, bytes: u64) {
    for context in lock().contexts.values() {
        if let Some((allocation, at)) = context.memory.find(device, bytes as usize) {
            allocation.set_written(at, bytes as usize);
        }
    }
}

/// Number of the device of the current context, or -1.
// SAFETY: no other function of the process has this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn driverCurrentDevice() -> c_int {
    lock().contexts.get(&current()).map_or(-1, |context| context.device as c_int)
}
