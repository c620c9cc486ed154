//! Device memory: allocations that kernels and copies can access, and which of their bytes were
//! written.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Offset of device addresses from host addresses, so that the host cannot access device memory by
/// accident.
const DEVICE: u64 = 1 << 62;
/// Alignment of allocations, as in the real driver.
const ALIGNMENT: usize = 512;
/// Unused bytes after an allocation, so that no other allocation begins at its end.
const GUARD: usize = 4096;
/// Fills unwritten bytes: NaN in every float format.
const POISON: u8 = 0xff;

/// Which bytes were written, one bit each.
#[derive(Debug)]
struct Written {
    bits: Box<[AtomicU64]>,
    /// Number of unwritten bytes.
    missing: AtomicUsize,
}

/// A memory range with a device address.
#[derive(Debug)]
pub(crate) struct Allocation {
    host: *mut u8,
    bytes: usize,
    /// `None` for host memory, whose bytes all count as written.
    written: Option<Written>,
    owned: bool,
    /// True for a module variable, which any kernel of the module may read.
    is_variable: bool,
}

// SAFETY: launches and copies access the bytes through raw pointers; streams order them as in the
// real driver. A race is a bug in the tested program, and yields arbitrary values.
unsafe impl Send for Allocation {}
// SAFETY: as for `Send`.
unsafe impl Sync for Allocation {}

impl Allocation {
    /// Its device address.
    pub(crate) fn address(&self) -> u64 {
        self.host as u64 | DEVICE
    }

    /// Length in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// True if it is a module variable.
    pub(crate) fn is_variable(&self) -> bool {
        self.is_variable
    }

    /// Its host address.
    pub(crate) fn host(&self) -> *mut u8 {
        self.host
    }

    /// The host address of a device address.
    pub(crate) fn host_of(address: u64) -> *mut u8 {
        (address & !DEVICE) as *mut u8
    }

    /// True if all bytes were written.
    pub(crate) fn is_complete(&self) -> bool {
        self.written.as_ref().is_none_or(|written| written.missing.load(Ordering::Relaxed) == 0)
    }

    /// Marks bytes from `offset` on as written.
    pub(crate) fn set_written(&self, offset: usize, bytes: usize) {
        let Some(written) = &self.written else { return };
        if written.missing.load(Ordering::Relaxed) == 0 {
            return;
        }
        for (word, mask) in words(offset, bytes) {
            if written.bits[word].load(Ordering::Relaxed) & mask != mask {
                let old = written.bits[word].fetch_or(mask, Ordering::Relaxed);
                let new = (mask & !old).count_ones() as usize;
                written.missing.fetch_sub(new, Ordering::Relaxed);
            }
        }
    }

    /// True if all these bytes were written.
    pub(crate) fn is_written(&self, offset: usize, bytes: usize) -> bool {
        let Some(written) = &self.written else { return true };
        let is_set =
            |(word, mask): (usize, u64)| written.bits[word].load(Ordering::Relaxed) & mask == mask;
        written.missing.load(Ordering::Relaxed) == 0 || words(offset, bytes).all(is_set)
    }

    fn forget_written(&self, offset: usize) {
        let Some(written) = &self.written else { return };
        let mask = 1 << (offset % 64);
        if written.bits[offset / 64].fetch_and(!mask, Ordering::Relaxed) & mask != 0 {
            written.missing.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Copies the written marks of these bytes, as part of a copy of the bytes.
    pub(crate) fn copy_written(&self, to: usize, from: &Self, at: usize, bytes: usize) {
        if self.written.is_none() {
            return;
        }
        if from.is_written(at, bytes) {
            self.set_written(to, bytes);
            return;
        }
        for i in 0..bytes {
            if from.is_written(at + i, 1) {
                self.set_written(to + i, 1);
            } else {
                self.forget_written(to + i);
            }
        }
    }
}

/// The words of a bit set that cover a range, each with the mask of the range's bits.
fn words(offset: usize, bytes: usize) -> impl Iterator<Item = (usize, u64)> {
    let end = offset + bytes;
    let (first, last) = (offset / 64, end.div_ceil(64));
    (first..last).map(move |word| {
        let (low, high) = (offset.max(word * 64) % 64, end.min(word * 64 + 64) - word * 64);
        (word, (u64::MAX << low) & (u64::MAX >> (64 - high)))
    })
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.owned {
            let layout = layout(self.bytes);
            // SAFETY: `Memory::allocate` allocated the bytes with this layout, and they are freed
            // once. The poison makes a use after free visible until the bytes are reused.
            unsafe {
                self.host.write_bytes(POISON, self.bytes);
                dealloc(self.host, layout);
            }
        }
    }
}

/// The memory of one device.
#[derive(Debug)]
pub(crate) struct Memory {
    table: RwLock<BTreeMap<u64, Arc<Allocation>>>,
    /// Bytes in use, at most `total`.
    used: Mutex<usize>,
    total: usize,
}

impl Memory {
    /// A device with this many bytes.
    pub(crate) fn new(total: usize) -> Self {
        Self { table: RwLock::default(), used: Mutex::new(0), total }
    }

    /// Bytes of the device.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// Bytes that are free.
    pub(crate) fn free_bytes(&self) -> usize {
        self.total - *self.used()
    }

    /// Allocates poisoned memory; `None` if the device has too little free memory.
    pub(crate) fn allocate(&self, bytes: usize) -> Option<u64> {
        self.allocate_as(bytes, false)
    }

    /// Like `allocate`, for a module variable.
    pub(crate) fn allocate_variable(&self, bytes: usize) -> Option<u64> {
        self.allocate_as(bytes, true)
    }

    fn allocate_as(&self, bytes: usize, is_variable: bool) -> Option<u64> {
        let bytes = bytes.max(1);
        {
            let mut used = self.used();
            let sum = used.checked_add(bytes)?;
            if sum > self.total {
                return None;
            }
            *used = sum;
        }
        // SAFETY: the layout is not empty.
        let host = unsafe { alloc(layout(bytes)) };
        if host.is_null() {
            *self.used() -= bytes;
            return None;
        }
        // SAFETY: the memory was just allocated with this many bytes.
        unsafe { host.write_bytes(POISON, bytes) };
        let written = Written {
            bits: (0..bytes.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            missing: AtomicUsize::new(bytes),
        };
        let written = Some(written);
        let allocation = Allocation { host, bytes, written, owned: true, is_variable };
        let address = allocation.address();
        self.insert(allocation);
        Some(address)
    }

    /// Maps host memory, owned by the caller, to a device address.
    pub(crate) fn map_host(&self, host: *mut u8, bytes: usize) -> u64 {
        let (written, owned) = (None, false);
        let allocation = Allocation { host, bytes, written, owned, is_variable: false };
        let address = allocation.address();
        self.insert(allocation);
        address
    }

    /// Frees an allocation, or unmaps host memory. False if none begins at this address.
    pub(crate) fn release(&self, address: u64) -> bool {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let Some(allocation) = table.remove(&address) else { return false };
        if allocation.owned {
            *self.used() -= allocation.bytes;
        }
        true
    }

    /// The allocation that contains these bytes, and their offset in it.
    pub(crate) fn find(&self, address: u64, bytes: usize) -> Option<(Arc<Allocation>, usize)> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let (first, allocation) = table.range(..=address).next_back()?;
        let offset = (address - first) as usize;
        (offset <= allocation.bytes && bytes <= allocation.bytes - offset)
            .then(|| (allocation.clone(), offset))
    }

    /// Describes the last allocation that begins before an address, for reports.
    pub(crate) fn near(&self, address: u64) -> String {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let before = table.range(..=address).next_back();
        before.map_or(String::new(), |(first, allocation)| {
            let behind = address - first - allocation.bytes.min((address - first) as usize) as u64;
            format!(" ({behind} bytes past the end of one of {} bytes)", allocation.bytes)
        })
    }

    /// Copies from the host; false if the bytes are not inside one allocation.
    ///
    /// # Safety
    /// `from` must be valid for this many bytes.
    pub(crate) unsafe fn write(&self, to: u64, from: *const u8, bytes: usize) -> bool {
        let Some((allocation, offset)) = self.find(to, bytes) else { return false };
        // SAFETY: `find` checked the range; the caller guarantees the source.
        unsafe { from.copy_to(allocation.host.add(offset), bytes) };
        allocation.set_written(offset, bytes);
        true
    }

    /// Copies to the host; false if the bytes are not inside one allocation.
    ///
    /// # Safety
    /// `to` must be valid for this many bytes.
    pub(crate) unsafe fn read(&self, from: u64, to: *mut u8, bytes: usize) -> bool {
        let Some((allocation, offset)) = self.find(from, bytes) else { return false };
        // SAFETY: `find` checked the range; the caller guarantees the target.
        unsafe { allocation.host.add(offset).copy_to(to, bytes) };
        true
    }

    /// Copies within device memory; false if either range is not inside one allocation.
    pub(crate) fn copy(&self, to: u64, from: u64, bytes: usize) -> bool {
        let (Some((target, to)), Some((source, from))) =
            (self.find(to, bytes), self.find(from, bytes))
        else {
            return false;
        };
        // SAFETY: `find` checked both ranges.
        unsafe { source.host.add(from).copy_to(target.host.add(to), bytes) };
        target.copy_written(to, &source, from, bytes);
        true
    }

    fn insert(&self, allocation: Allocation) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.insert(allocation.address(), Arc::new(allocation));
    }

    fn used(&self) -> MutexGuard<'_, usize> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn layout(bytes: usize) -> Layout {
    // The fallback is never used: `allocate` checks sizes against the device's memory.
    Layout::from_size_align(bytes + GUARD, ALIGNMENT).unwrap_or(Layout::new::<u8>())
}
