//! Host memory that its owner fills in place: pending copies from it block writers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use device::PinnedBytes;

/// Memory of a pinned buffer.
#[derive(Debug)]
pub(crate) struct StagingMemory {
    words: Vec<u64>,
    bytes: usize,
    /// Pending copies from it.
    readers: Arc<AtomicUsize>,
    /// Bytes of all buffers of the device.
    taken: Arc<AtomicUsize>,
}

/// A queued copy; dropped once it has run.
#[derive(Debug)]
pub(crate) struct Copy {
    bytes: Vec<u8>,
    readers: Arc<AtomicUsize>,
}

impl StagingMemory {
    /// Memory, all zero; its length is added to `taken` as long as it lives.
    pub(crate) fn new(bytes: usize, taken: &Arc<AtomicUsize>) -> Self {
        taken.fetch_add(bytes, Ordering::Relaxed);
        let words = vec![0; bytes.div_ceil(size_of::<u64>())];
        Self { words, bytes, readers: Arc::default(), taken: taken.clone() }
    }

    /// Its first `bytes` bytes. They are unchanged when the copy runs: until then nobody can write.
    pub(crate) fn copy(&self, bytes: usize) -> Arc<Copy> {
        let head = self.bytes().get(..bytes);
        let head = head.unwrap_or_else(|| panic!("{bytes} bytes of a buffer of {}", self.bytes));
        self.readers.fetch_add(1, Ordering::Relaxed);
        Arc::new(Copy { bytes: head.to_vec(), readers: self.readers.clone() })
    }
}

impl Copy {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl PinnedBytes for StagingMemory {
    fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.bytes]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let readers = self.readers.load(Ordering::Relaxed);
        assert!(readers == 0, "written while {readers} copies to the device read it");
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.bytes]
    }
}

impl Drop for StagingMemory {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        self.readers.fetch_sub(1, Ordering::Relaxed);
    }
}
