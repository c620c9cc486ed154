//! The arena: one allocation, divided into the disjoint slices that a plan gives to a launch.
#![allow(unsafe_code)]

use bytemuck::{Pod, Zeroable};

/// Bytes of a huge page.
const HUGE_PAGE: usize = 2 << 20;

/// A cache line: plan offsets are multiples of it, so they are aligned in memory too.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Unit([u8; 64]);

/// Memory of all values of a program.
#[derive(Debug)]
pub(super) struct Arena {
    memory: Vec<Unit>,
}

/// A slice of the arena: offset and length in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) offset: usize,
    pub(super) bytes: usize,
}

impl Arena {
    /// An arena of `bytes`, filled with 0xFF: every f32 in it is NaN until it is written.
    pub(super) fn new(bytes: usize) -> Self {
        let units = bytes.div_ceil(size_of::<Unit>());
        let mut memory = Vec::with_capacity(units);
        ask_for_huge_pages(&mut memory);
        memory.resize(units, Unit([0xFF; 64]));
        Self { memory }
    }

    /// Overwrites everything with `byte`.
    pub(super) fn fill(&mut self, byte: u8) {
        self.memory.fill(Unit([byte; 64]));
    }

    /// One slice, to read.
    pub(super) fn read(&self, piece: Piece) -> &[u8] {
        &bytemuck::cast_slice(&self.memory)[piece.offset..piece.offset + piece.bytes]
    }

    /// Slices to read and slices to write, at once.
    ///
    /// Panics unless every written slice is inside the arena and disjoint from all others.
    pub(super) fn split(
        &mut self,
        read: &[Piece],
        write: &[Piece],
    ) -> (Vec<&[u8]>, Vec<&mut [u8]>) {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut self.memory);
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
        // SAFETY: both slices lie inside `bytes` (asserted above), which is borrowed mutably for as
        // long as the result lives, so nothing else reaches this memory. Every piece handed out as
        // `&mut` overlaps no other piece of either list (asserted above); pieces handed out as `&`
        // may overlap one another, which shared references may.
        unsafe {
            let shared = |p: &Piece| std::slice::from_raw_parts(base.add(p.offset), p.bytes);
            let unique = |p: &Piece| std::slice::from_raw_parts_mut(base.add(p.offset), p.bytes);
            (read.iter().map(shared).collect(), write.iter().map(unique).collect())
        }
    }
}

/// Asks for huge pages under the memory that the vector has reserved: products walk columns of
/// matrices, and each row of one is a page away. Where the system has none, nothing changes.
fn ask_for_huge_pages(memory: &mut Vec<Unit>) {
    #[cfg(target_os = "linux")]
    {
        let len = size_of_val(memory.spare_capacity_mut());
        let start = memory.spare_capacity_mut().as_mut_ptr().cast::<u8>();
        let skip = start.align_offset(HUGE_PAGE);
        let Some(whole) = len.checked_sub(skip).map(|len| len / HUGE_PAGE * HUGE_PAGE) else {
            return;
        };
        // SAFETY: the range lies within the memory that the vector has reserved, and the advice
        // changes neither its contents nor who may use it.
        let _ = unsafe {
            rustix::mm::madvise(start.add(skip).cast(), whole, rustix::mm::Advice::LinuxHugepage)
        };
    }
}

fn overlap(a: &Piece, b: &Piece) -> bool {
    a.bytes > 0 && b.bytes > 0 && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes
}

#[cfg(test)]
mod tests {
    use super::{Arena, Piece};

    #[test]
    fn pieces_are_the_bytes_that_were_asked_for() {
        let mut arena = Arena::new(64);
        let (a, b) = (Piece { offset: 0, bytes: 8 }, Piece { offset: 32, bytes: 4 });
        let (_, mut write) = arena.split(&[], &[a, b]);
        write[0].fill(1);
        write[1].fill(2);
        assert_eq!(arena.read(a), [1; 8]);
        assert_eq!(arena.read(b), [2; 4]);
        assert_eq!(arena.read(Piece { offset: 8, bytes: 4 }), [0xFF; 4]);
    }

    #[test]
    fn an_overlap_is_refused() {
        let (a, b) = (Piece { offset: 0, bytes: 8 }, Piece { offset: 4, bytes: 8 });
        let refused = std::panic::catch_unwind(|| {
            let mut arena = Arena::new(64);
            let _ = arena.split(&[a], &[b]);
        });
        assert!(refused.is_err());
    }
}
