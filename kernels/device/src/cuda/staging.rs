//! Pinned memory that its owner fills in place, except while a copy to the device reads it.
#![allow(unsafe_code)]

use std::sync::Arc;

use super::context::Context;
use super::memory::PinnedMemory;
use super::stream::Event;
use crate::{DeviceError, PinnedBytes};

/// Pinned memory that its owner accesses by reference. The device only reads it, by copies.
#[derive(Debug)]
pub(super) struct StagingMemory {
    pub(super) memory: PinnedMemory,
    /// Marks the end of the last copy to the device.
    pub(super) copied: Event,
}

impl StagingMemory {
    /// Allocates zeroed memory.
    pub(super) fn new(context: &Arc<Context>, bytes: usize) -> Result<Self, DeviceError> {
        let (memory, copied) = (PinnedMemory::new(context, bytes)?, Event::new(context, false)?);
        Ok(Self { memory, copied })
    }
}

impl PinnedBytes for StagingMemory {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the memory is alive, initialised by `new`, and has that length. A writer borrows
        // `self` mutably; the device gets the address only as the source of copies.
        unsafe { std::slice::from_raw_parts(self.memory.host.as_ptr(), self.memory.bytes) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        assert!(self.copied.is_done(), "written while a copy to the device reads it: {self:?}");
        // SAFETY: as for `bytes`. No copy reads the memory (asserted), and none begins while it is
        // borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.memory.host.as_ptr(), self.memory.bytes) }
    }
}

impl Drop for StagingMemory {
    fn drop(&mut self) {
        // An error is ignored: a failed device runs no more copies.
        let _ = self.copied.wait();
    }
}
