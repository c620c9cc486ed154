//! Shared memory of a block: its bytes, and who has touched them since the last barrier.

use super::{LAUNCH_FAILED, Trouble, trouble};

/// Who touched a byte last: the number of barriers until then, and a warp. Tags of after the last
/// barrier are the greatest.
type Tag = u16;

/// Bits of a tag's warp.
const WARP_BITS: u32 = 7;
/// In place of a warp: more than one.
const SEVERAL: Tag = 32;
/// Added to the warp: by atomics alone.
const ATOMIC: Tag = 64;
/// A copy still brings the byte.
const IN_FLIGHT: Tag = Tag::MAX;
/// Of no access.
const NEVER: Tag = 0;
/// Barriers are counted up to here.
const MAX_EPOCH: Tag = (1 << (16 - WARP_BITS)) - 2;

/// How bytes are touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Touch {
    Read,
    Write,
    Atomic,
    /// A copy begins, whose bytes nobody may look at.
    Begin,
    /// The copy's lane has waited for it.
    Land,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) bytes: Vec<u8>,
    /// By byte; empty if nothing is watched.
    written: Vec<Tag>,
    read: Vec<Tag>,
    epoch: Tag,
}

impl Shared {
    pub(super) fn new(bytes: usize, is_watched: bool) -> Self {
        let tags = if is_watched { vec![NEVER; bytes] } else { vec![] };
        Self { bytes: vec![0xff; bytes], written: tags.clone(), read: tags, epoch: 1 }
    }

    /// Begins a block: nothing is written.
    pub(super) fn begin(&mut self) {
        self.barrier();
        self.bytes.fill(0xff);
        self.written.fill(NEVER);
    }

    /// All warps have met.
    pub(super) fn barrier(&mut self) {
        if self.epoch == MAX_EPOCH {
            for tag in self.written.iter_mut().filter(|tag| ![NEVER, IN_FLIGHT].contains(tag)) {
                *tag = 1 << WARP_BITS;
            }
            self.read.fill(NEVER);
            self.epoch = 1;
        }
        self.epoch += 1;
    }

    /// Notes that a warp touches 1, 2, 4, 8 or 16 bytes, which are inside.
    #[inline(always)]
    pub(super) fn touch(
        &mut self,
        at: usize,
        bytes: usize,
        warp: u32,
        lane: usize,
        touch: Touch,
    ) -> Result<(), Trouble> {
        if self.written.is_empty() {
            return Ok(());
        }
        let is_fine = match bytes {
            16 => self.note::<16>(at, warp, touch),
            8 => self.note::<8>(at, warp, touch),
            4 => self.note::<4>(at, warp, touch),
            2 => self.note::<2>(at, warp, touch),
            _ => self.note::<1>(at, warp, touch),
        };
        if is_fine { Ok(()) } else { self.explain(at, bytes, warp, lane) }
    }

    /// False, and nothing is noted, if the bytes may not be touched so.
    #[inline(always)]
    fn note<const N: usize>(&mut self, at: usize, warp: u32, touch: Touch) -> bool {
        let now = self.epoch << WARP_BITS;
        let me = now | warp as Tag;
        let (Some(written), Some(read)) =
            (self.written[at..].first_chunk_mut::<N>(), self.read[at..].first_chunk_mut::<N>())
        else {
            return false;
        };
        let is_mine = |tag: Tag| (tag < now) | (tag & !ATOMIC == me);
        let is_atomic = |tag: Tag| (tag >= now) & (tag != IN_FLIGHT) & (tag & ATOMIC != 0);
        let mut bad = false;
        for i in 0..N {
            let (writer, reader) = (written[i], read[i]);
            let is_read_by_others = (reader >= now) & (reader != me);
            bad |= match touch {
                Touch::Read => !is_mine(writer) | (writer == NEVER),
                Touch::Write | Touch::Begin => !is_mine(writer) | is_read_by_others,
                Touch::Atomic => {
                    let plain = !is_mine(writer) | is_read_by_others;
                    (writer == NEVER) | !is_atomic(writer) & plain
                }
                Touch::Land => false,
            };
        }
        if bad {
            return false;
        }
        for i in 0..N {
            match touch {
                Touch::Read => {
                    let is_shared = (read[i] >= now) & (read[i] != me);
                    read[i] = if is_shared { now | SEVERAL } else { me };
                }
                Touch::Atomic => {
                    let is_shared = is_atomic(written[i]) & (written[i] & !ATOMIC != me);
                    written[i] = ATOMIC | if is_shared { now | SEVERAL } else { me };
                }
                Touch::Begin => written[i] = IN_FLIGHT,
                Touch::Write | Touch::Land => written[i] = me,
            }
        }
        true
    }

    #[cold]
    fn explain(&self, at: usize, bytes: usize, warp: u32, lane: usize) -> Result<(), Trouble> {
        let now = self.epoch << WARP_BITS;
        let written = &self.written[at..at + bytes];
        let is_of_others = |tag: &Tag| *tag >= now && tag & !ATOMIC != now | warp as Tag;
        let text = if written.contains(&IN_FLIGHT) {
            "touches shared bytes that a cp.async still brings"
        } else if written.iter().any(is_of_others) {
            "touches shared bytes that another warp wrote since the last barrier"
        } else if written.contains(&NEVER) && !self.read[at..at + bytes].iter().any(is_of_others) {
            "reads shared bytes that nobody wrote"
        } else {
            "writes shared bytes that another warp read since the last barrier"
        };
        trouble(LAUNCH_FAILED, 1 << lane, format!("{text}, at {at:#x} of shared memory"))
    }
}
