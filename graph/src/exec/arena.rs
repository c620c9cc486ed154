//! The arena: one memory mapping, from which each launch gets the disjoint slices given by the
//! plan.
#![allow(unsafe_code)]

use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::GraphError;

/// Bytes of a huge page.
const HUGE_PAGE: usize = 2 << 20;

/// Memory for the values of programs that run one at a time on the CPU; clones share the memory.
#[derive(Debug, Clone, Default)]
pub struct CpuArena(Arc<Mutex<Arena>>);

impl CpuArena {
    /// Grows the arena to at least `bytes`; its contents may be lost. Pages are allocated on first
    /// write.
    ///
    /// # Errors
    /// [`GraphError::NoMemory`].
    pub fn reserve(&self, bytes: usize) -> Result<(), GraphError> {
        let mut arena = self.lock();
        if arena.bytes < bytes {
            *arena = Arena::new(bytes)?;
        }
        Ok(())
    }

    /// Bytes of the arena.
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Overwrites the entire arena with `byte`: tests use this to show that a run reads only values
    /// that it has written. 0xFF makes every f32 NaN.
    pub fn poison(&self, byte: u8) {
        self.lock().bytes_mut().fill(byte);
    }

    /// Locks the memory for one run. A lock poisoned by a panic is ignored, since no run reads
    /// values of an earlier run.
    pub(super) fn lock(&self) -> MutexGuard<'_, Arena> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Memory of all values of a program. Plan offsets are multiples of a cache line, and mappings are
/// page-aligned, so every value is aligned.
#[derive(Debug)]
pub(super) struct Arena {
    memory: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the arena owns its mapping, which is not tied to a thread.
unsafe impl Send for Arena {}

/// A slice of the arena: offset and length in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) offset: usize,
    pub(super) bytes: usize,
}

impl Default for Arena {
    /// An empty arena with an aligned dangling pointer.
    fn default() -> Self {
        Self { memory: NonNull::<u64>::dangling().cast(), bytes: 0 }
    }
}

impl Arena {
    /// An arena of `bytes` zero bytes; the system allocates each page on first write.
    fn new(bytes: usize) -> Result<Self, GraphError> {
        if bytes == 0 {
            return Ok(Self::default());
        }
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping, at an address of the system's choice, affects no other memory.
        let mapped = unsafe { mmap_anonymous(null_mut(), bytes, access, flags) };
        let no_memory = |reason: String| GraphError::NoMemory { bytes, reason };
        let mapped = mapped.map_err(|e| no_memory(e.to_string()))?;
        let memory = NonNull::new(mapped.cast()).ok_or_else(|| no_memory("no address".into()))?;
        let arena = Self { memory, bytes };
        arena.ask_for_huge_pages();
        Ok(arena)
    }

    /// Requests huge pages, because GEMMs walk down columns of matrices whose rows are a page
    /// apart. No effect on systems without huge page support.
    fn ask_for_huge_pages(&self) {
        #[cfg(target_os = "linux")]
        {
            let skip = self.memory.as_ptr().align_offset(HUGE_PAGE);
            let Some(whole) = self.bytes.checked_sub(skip).map(|len| len / HUGE_PAGE * HUGE_PAGE)
            else {
                return;
            };
            // SAFETY: the range is inside the mapping, and the advice changes neither its contents
            // nor its access rights.
            let _ = unsafe {
                madvise(self.memory.add(skip).as_ptr().cast(), whole, Advice::LinuxHugepage)
            };
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is that long, initialised by the system, and owned by `self`.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.bytes) }
    }

    /// A slice for reading.
    pub(super) fn read(&self, piece: Piece) -> &[u8] {
        // SAFETY: the mapping is that long, initialised by the system, and owned by `self`.
        let bytes = unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.bytes) };
        &bytes[piece.offset..piece.offset + piece.bytes]
    }

    /// The slices for reading and the slices for writing.
    ///
    /// Panics unless all slices are inside the arena and every written slice is disjoint from all
    /// other slices.
    pub(super) fn split(
        &mut self,
        read: &[Piece],
        write: &[Piece],
    ) -> (Vec<&[u8]>, Vec<&mut [u8]>) {
        let bytes = self.bytes_mut();
        for piece in read.iter().chain(write) {
            assert!(piece.offset + piece.bytes <= bytes.len(), "{piece:?} outside the arena");
        }
        for (i, w) in write.iter().enumerate() {
            let others = read.iter().chain(&write[..i]);
            for other in others {
                assert!(!overlap(w, other), "{w:?} overlaps {other:?}: the memory plan is wrong");
            }
        }
        let base = bytes.as_mut_ptr();
        // SAFETY: both slices are inside `bytes` (asserted above), which is borrowed mutably as
        // long as the result exists, so no other reference to this memory exists. A piece returned
        // as `&mut` overlaps no other piece of either list (asserted above); pieces returned as `&`
        // may overlap, as shared references may.
        unsafe {
            let shared = |p: &Piece| std::slice::from_raw_parts(base.add(p.offset), p.bytes);
            let unique = |p: &Piece| std::slice::from_raw_parts_mut(base.add(p.offset), p.bytes);
            (read.iter().map(shared).collect(), write.iter().map(unique).collect())
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: mapped in `new`; nothing borrows it any more, and it is unmapped once.
            let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.bytes) };
        }
    }
}

fn overlap(a: &Piece, b: &Piece) -> bool {
    a.bytes > 0 && b.bytes > 0 && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes
}

#[cfg(test)]
mod tests {
    use super::{Arena, CpuArena, Piece};

    #[test]
    fn arena_slices_are_the_requested_bytes() {
        let mut arena = Arena::new(64).expect("memory");
        let (a, b) = (Piece { offset: 0, bytes: 8 }, Piece { offset: 32, bytes: 4 });
        let (_, mut write) = arena.split(&[], &[a, b]);
        write[0].fill(1);
        write[1].fill(2);
        assert_eq!(arena.read(a), [1; 8]);
        assert_eq!(arena.read(b), [2; 4]);
        assert_eq!(arena.read(Piece { offset: 8, bytes: 4 }), [0; 4]);
    }

    #[test]
    fn overlapping_slices_are_rejected() {
        let (a, b) = (Piece { offset: 0, bytes: 8 }, Piece { offset: 4, bytes: 8 });
        let refused = std::panic::catch_unwind(|| {
            let mut arena = Arena::new(64).expect("memory");
            let _ = arena.split(&[a], &[b]);
        });
        assert!(refused.is_err());
    }

    /// The arena grows to the size of the largest plan and never shrinks; an empty plan needs no
    /// memory.
    #[test]
    fn arena_size_equals_largest_plan() {
        let arena = CpuArena::default();
        let sizes = [0, 4096, 100, 1 << 20].map(|bytes| {
            arena.reserve(bytes).expect("memory");
            arena.bytes()
        });
        assert_eq!(sizes, [0, 4096, 4096, 1 << 20]);
        let refused = arena.reserve(usize::MAX / 2).expect_err("more than any machine has");
        assert!(refused.to_string().contains("GiB of memory"), "{refused}");
        assert_eq!(arena.bytes(), 1 << 20, "what there was is still there");
    }
}
