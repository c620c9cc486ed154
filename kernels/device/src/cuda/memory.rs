//! Device memory, and pinned host memory that the device can access.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;

use cudarc::driver::{result, sys};

use super::context::{Context, OrFault};
use crate::{DeviceError, DevicePtr};

/// An allocation of device memory.
#[derive(Debug)]
pub(super) struct Allocation {
    pub(super) ptr: DevicePtr,
    pub(super) bytes: usize,
    context: Arc<Context>,
}

impl Allocation {
    /// Allocates memory, aligned to 256 bytes by the driver, contents undefined.
    pub(super) fn new(context: &Arc<Context>, bytes: usize) -> Result<Self, DeviceError> {
        context.bind()?;
        // At least 1 byte: the driver returns no address for 0 bytes, and this crate identifies
        // memory by its address.
        // SAFETY: the function only requires a current context.
        match unsafe { result::malloc_sync(bytes.max(1)) } {
            Ok(ptr) => Ok(Self { ptr, bytes, context: context.clone() }),
            Err(e) if e.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                let free = context.memory()?.free;
                Err(DeviceError::OutOfMemory { wanted: bytes, free })
            }
            Err(e) => Err(e).or_fault(|| format!("allocating {bytes} bytes")),
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: `ptr` is from `new` and freed once. The driver waits for work that may use
            // it. An error is ignored: a failed device has already lost its memory.
            let _ = unsafe { result::free_sync(self.ptr) };
        }
    }
}

/// Pinned host memory that kernels can access through a device address.
#[derive(Debug)]
pub(super) struct PinnedMemory {
    pub(super) host: NonNull<u8>,
    pub(super) bytes: usize,
    pub(super) device_ptr: DevicePtr,
    context: Arc<Context>,
}

// SAFETY: the memory belongs to the process and not to a thread. It is accessed by volatile reads
// and writes through the raw pointer, or by references that borrow the `StagingMemory` that
// contains it.
unsafe impl Send for PinnedMemory {}
// SAFETY: as for `Send`. Two threads that write the same bytes at once would race;
// `Device::write_pinned` leaves the order of writes to its caller, and a read returns plain bytes,
// for which every value is valid.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    /// Allocates zeroed memory that every context and the GPU can access.
    pub(super) fn new(context: &Arc<Context>, bytes: usize) -> Result<Self, DeviceError> {
        context.bind()?;
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        let call = || format!("allocating {bytes} bytes of pinned memory");
        // SAFETY: the function only requires a current context.
        let host = unsafe { result::malloc_host(bytes.max(1), flags) }.or_fault(call)?;
        let Some(host) = NonNull::new(host.cast::<u8>()) else {
            return Err(DeviceError::Driver { call: call(), reason: "no address".into() });
        };
        let mut memory = Self { host, bytes, device_ptr: 0, context: context.clone() };
        // SAFETY: `host` points to that many bytes of memory that nothing else uses yet; the second
        // call queries the device address of memory allocated with DEVICEMAP.
        let mapped = unsafe {
            host.as_ptr().write_bytes(0, bytes.max(1));
            sys::cuMemHostGetDevicePointer_v2(&mut memory.device_ptr, host.as_ptr().cast(), 0)
        };
        mapped.result().or_fault(|| "mapping pinned memory".into())?;
        Ok(memory)
    }

    /// Host address of `bytes` bytes from `offset`, for copies by the driver.
    pub(super) fn host(&self, offset: usize, bytes: usize) -> *const u8 {
        self.check(offset, bytes);
        // SAFETY: `offset` is within the memory, or at its end.
        unsafe { self.host.as_ptr().add(offset) }
    }

    /// Copies host bytes into the memory.
    pub(super) fn write(&self, offset: usize, bytes: &[u8]) {
        self.check(offset, bytes.len());
        let mut at = 0;
        while at < bytes.len() {
            let (width, rest) = (width(offset + at, bytes.len() - at), &bytes[at..]);
            // SAFETY: `offset + at + width` is within the memory, which is alive and begins on a
            // page; `width` ensures that the address is aligned to the written word.
            unsafe {
                let to = self.host.as_ptr().add(offset + at);
                match width {
                    8 => to.cast::<u64>().write_volatile(u64::from_ne_bytes(first(rest))),
                    4 => to.cast::<u32>().write_volatile(u32::from_ne_bytes(first(rest))),
                    _ => to.write_volatile(rest[0]),
                }
            }
            at += width;
        }
    }

    /// Copies bytes out of the memory; aligned 4-byte words are read atomically.
    pub(super) fn read(&self, offset: usize, bytes: &mut [u8]) {
        self.check(offset, bytes.len());
        let mut at = 0;
        while at < bytes.len() {
            let width = width(offset + at, bytes.len() - at);
            let to = &mut bytes[at..at + width];
            // SAFETY: as for `write`. The device may write the word at the same time: a volatile
            // read of an aligned word then gives its old or its new value.
            unsafe {
                let from = self.host.as_ptr().add(offset + at);
                match width {
                    8 => to.copy_from_slice(&from.cast::<u64>().read_volatile().to_ne_bytes()),
                    4 => to.copy_from_slice(&from.cast::<u32>().read_volatile().to_ne_bytes()),
                    _ => to[0] = from.read_volatile(),
                }
            }
            at += width;
        }
    }

    fn check(&self, offset: usize, bytes: usize) {
        let end = offset.checked_add(bytes);
        assert!(
            end.is_some_and(|end| end <= self.bytes),
            "{offset} + {bytes} bytes of {} pinned ones",
            self.bytes
        );
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: the memory is from `new` and freed once; the device waits for all work
            // before it drops its memory.
            let _ = unsafe { result::free_host(self.host.as_ptr().cast()) };
        }
    }
}

/// Bytes of the widest word that can be copied at `address` when `left` bytes remain.
fn width(address: usize, left: usize) -> usize {
    [8, 4].into_iter().find(|w| address.is_multiple_of(*w) && left >= *w).unwrap_or(1)
}

fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut word = [0; N];
    word.copy_from_slice(&bytes[..N]);
    word
}

#[cfg(test)]
mod tests {
    use super::width;

    #[test]
    fn aligned_words_are_copied_in_one_access() {
        let widths = |offset: usize, bytes: usize| {
            let (mut at, mut list) = (0, vec![]);
            while at < bytes {
                list.push(width(offset + at, bytes - at));
                at += list[list.len() - 1];
            }
            list
        };
        assert_eq!(widths(0, 20), [8, 8, 4]);
        assert_eq!(widths(4, 13), [4, 8, 1]);
        assert_eq!(widths(3, 6), [1, 4, 1]);
        assert_eq!(widths(8, 3), [1, 1, 1]);
    }
}
