//! Memory and copies.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::{c_uint, c_void};
use std::slice;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Out, api};
use crate::cuda::capture;
use crate::cuda::errors::*;
use crate::cuda::state::{Context, Pinned, lock};
use crate::cuda::work::{Handle, Work};

/// Alignment of pinned memory, as in the real driver.
const PAGE: usize = 4096;
/// `CU_MEMHOSTALLOC_PORTABLE`, `DEVICEMAP` and `WRITECOMBINED`.
const MAX_FLAGS: c_uint = 7;

fn layout(bytes: usize) -> Outcome<Layout> {
    Layout::from_size_align(bytes, PAGE).map_err(|_| OUT_OF_MEMORY.into())
}

fn no_bytes() -> Failure {
    misuse(INVALID_VALUE, "an allocation of 0 bytes")
}

/// Rejects a range that is not inside one allocation.
fn check_inside(context: &Context, address: u64, bytes: usize) -> Outcome {
    match context.memory.find(address, bytes) {
        Some(_) => Ok(()),
        None => Err(misuse(
            INVALID_VALUE,
            format!("{bytes} bytes from {address:#x} are not inside an allocation"),
        )),
    }
}

/// Rejects copies of pageable memory during capture: they would execute at once.
fn forbid_pageable(context: &mut Context, stream: Handle) -> Outcome {
    capture::forbid(context, stream, "a copy of memory that is not pinned, during capture")
}

api! {
    /// Allocates device memory.
    fn cuMemAlloc_v2(address: Out<u64>, bytes: usize) {
        let mut state = lock();
        state.healthy()?;
        state.forbid_in_capture()?;
        let context = state.context()?;
        if bytes == 0 {
            return Err(no_bytes());
        }
        let made = context.memory.allocate(bytes).ok_or(OUT_OF_MEMORY)?;
        context.allocations.insert(made, bytes);
        address.put(made)
    }

    /// Frees device memory after all work has ended.
    fn cuMemFree_v2(address: u64) {
        let mut state = lock();
        state.context()?;
        state.forbid_in_capture()?;
        if address == 0 {
            return Ok(());
        }
        let (mut state, waited) = state.finish(None);
        let context = state.context()?;
        if context.allocations.remove(&address).is_none() {
            waited?;
            return Err(misuse(INVALID_VALUE, format!("no allocation begins at {address:#x}")));
        }
        // If the device has failed, its work may still use the memory: it is not freed.
        waited?;
        context.memory.release(address);
        Ok(())
    }

    /// Free and total memory.
    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) {
        let mut state = lock();
        let memory = &state.healthy()?.memory;
        free.put(memory.free_bytes())?;
        total.put(memory.total())
    }

    /// Allocates pinned host memory.
    fn cuMemHostAlloc(address: Out<*mut c_void>, bytes: usize, flags: c_uint) {
        let mut state = lock();
        state.healthy()?;
        state.forbid_in_capture()?;
        let context = state.context()?;
        if bytes == 0 {
            return Err(no_bytes());
        }
        if flags > MAX_FLAGS {
            return Err(misuse(INVALID_VALUE, format!("flags {flags}")));
        }
        // SAFETY: the layout is not empty.
        let host = unsafe { alloc(layout(bytes)?) };
        if host.is_null() {
            return Err(OUT_OF_MEMORY.into());
        }
        let device = context.memory.map_host(host, bytes);
        context.pinned.insert(host.addr(), Pinned { bytes, device });
        address.put(host.cast())
    }

    /// Frees pinned memory after all work has ended.
    fn cuMemFreeHost(address: *mut c_void) {
        let mut state = lock();
        state.context()?;
        state.forbid_in_capture()?;
        let (mut state, waited) = state.finish(None);
        let context = state.context()?;
        let Some(pinned) = context.pinned.remove(&address.addr()) else {
            waited?;
            return Err(misuse(INVALID_VALUE, format!("no pinned memory begins at {address:?}")));
        };
        // If the device has failed, its work may still use the memory: it is not freed.
        waited?;
        context.memory.release(pinned.device);
        let layout = layout(pinned.bytes)?;
        // SAFETY: `cuMemHostAlloc` allocated the memory with this layout, and removing it from the
        // table ensures that it is freed once.
        unsafe { dealloc(address.cast(), layout) };
        Ok(())
    }

    /// The device address of pinned memory.
    fn cuMemHostGetDevicePointer_v2(
        address: Out<u64>,
        host: *mut c_void,
        flags: c_uint,
    ) in context {
        let found = context.pinned(host.addr(), 1)?.filter(|_| flags == 0);
        let wrong = || misuse(INVALID_VALUE, format!("{host:?} is not pinned, or flags {flags}"));
        address.put(found.ok_or_else(wrong)?)
    }

    /// Copies from the host. Pageable memory is read before the call returns.
    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: Handle) in context {
        check_inside(context, to, bytes)?;
        if let Some(from) = context.pinned(from.addr(), bytes)? {
            return capture::submit(context, stream, Work::Copy { to, from, bytes });
        }
        forbid_pageable(context, stream)?;
        // SAFETY: the caller provides this many bytes.
        let held = unsafe { slice::from_raw_parts(from.cast::<u8>(), bytes) };
        capture::submit(context, stream, Work::ToDevice { to, bytes: held.into() })
    }

    /// Copies to the host. Pageable memory is written before the call returns.
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: Handle) {
        let mut state = lock();
        let context = state.healthy()?;
        check_inside(context, from, bytes)?;
        if let Some(to) = context.pinned(to.addr(), bytes)? {
            return capture::submit(context, stream, Work::Copy { to, from, bytes });
        }
        forbid_pageable(context, stream)?;
        let held = Arc::new(Mutex::new(vec![0; bytes]));
        capture::submit(context, stream, Work::ToHost { from, bytes: held.clone() })?;
        state.finish(Some(stream)).1?;
        let held = held.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: `to` is valid for writes of this many bytes, as the function's documentation
        // requires.
        unsafe { to.cast::<u8>().copy_from_nonoverlapping(held.as_ptr(), bytes) };
        Ok(())
    }

    /// Copies within device memory.
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Handle) in context {
        check_inside(context, to, bytes)?;
        check_inside(context, from, bytes)?;
        capture::submit(context, stream, Work::Copy { to, from, bytes })
    }
}
