//! Shared memory of a block: the bytes, and which warps accessed each byte since the last barrier.

use super::{ILLEGAL_ADDRESS, LAUNCH_FAILED, MISALIGNED_ADDRESS, Trouble, trouble};
use crate::ptx::program::Program;

/// The last access to a byte: its epoch (the number of barriers before the access) in the upper
/// bits, and its warp. Accesses after the last barrier have the largest tags.
type Tag = u16;

/// Number of bits for the warp in a tag.
const WARP_BITS: u32 = 7;
/// Warp number that means more than one warp.
const SEVERAL: Tag = 32;
/// Flag in the warp bits: the byte was accessed only by atomics.
const ATOMIC: Tag = 64;
/// Tag of a byte that is the target of a copy in flight.
const IN_FLIGHT: Tag = Tag::MAX;
/// Tag of a byte without an access.
const NEVER: Tag = 0;
/// Maximum epoch in a tag.
const MAX_EPOCH: Tag = (1 << (16 - WARP_BITS)) - 2;

/// Kind of access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Touch {
    Read,
    Write,
    Atomic,
    /// A copy to these bytes begins; until it completes they may not be accessed.
    Begin,
    /// The lane that issued the copy has waited for it.
    Land,
    /// A bulk copy has completed.
    LandBulk,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) bytes: Vec<u8>,
    /// By byte, the tag of the last write; empty if checks are off.
    written: Vec<Tag>,
    read: Vec<Tag>,
    epoch: Tag,
    /// Number of completed barriers of any kind, over all blocks.
    pub(super) barriers: u64,
    /// True if the kernel has barriers for a part of the warps, such as mbarriers: races between
    /// warps are not checked.
    is_partial: bool,
    /// By byte, the thread (from 1) whose write is not yet covered by a proxy fence, or 0; empty if
    /// the asynchronous proxy is not used.
    unfenced: Vec<u16>,
    /// By warp, its unfenced writes: offsets, lengths and lanes.
    wrote: Vec<Vec<(u32, u8, u8)>>,
}

impl Shared {
    pub(super) fn new(bytes: usize, is_watched: bool, program: &Program) -> Self {
        let tags = if is_watched { vec![NEVER; bytes] } else { vec![] };
        Self {
            bytes: vec![0xff; bytes],
            unfenced: if program.is_async { tags.clone() } else { vec![] },
            written: tags.clone(),
            read: tags,
            epoch: 1,
            barriers: 0,
            is_partial: program.is_partial,
            wrote: vec![vec![]; 32],
        }
    }

    /// Begins a block: all bytes count as unwritten.
    pub(super) fn begin(&mut self) {
        self.barrier();
        self.bytes.fill(0xff);
        self.written.fill(NEVER);
        self.unfenced.fill(0);
        self.wrote.iter_mut().for_each(Vec::clear);
    }

    /// All warps have reached a barrier.
    pub(super) fn barrier(&mut self) {
        self.barriers += 1;
        if self.epoch == MAX_EPOCH {
            for tag in self.written.iter_mut().filter(|tag| ![NEVER, IN_FLIGHT].contains(tag)) {
                *tag = 1 << WARP_BITS;
            }
            self.read.fill(NEVER);
            self.epoch = 1;
        }
        self.epoch += 1;
    }

    /// Offset of a lane's bytes; an error if the address is out of range or misaligned.
    #[inline(always)]
    pub(super) fn place(
        &self,
        what: &str,
        address: u64,
        bytes: usize,
        multiple: u64,
        lane: usize,
    ) -> Result<usize, Trouble> {
        if !address.is_multiple_of(multiple) {
            let text = format!("{what} at {address:#x}, which is not a multiple of {multiple}");
            return trouble(MISALIGNED_ADDRESS, 1 << lane, text);
        }
        let length = self.bytes.len();
        if address.checked_add(bytes as u64).is_none_or(|end| end > length as u64) {
            let text = format!(
                "{what}, {bytes} bytes at {address:#x}, outside of shared memory ({length} bytes)"
            );
            return trouble(ILLEGAL_ADDRESS, 1 << lane, text);
        }
        Ok(address as usize)
    }

    /// Records a warp's access to 1, 2, 4, 8 or 16 bytes, which must be in range.
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
        if !is_fine {
            return self.explain(at, bytes, warp, lane);
        }
        if !self.unfenced.is_empty() {
            self.mark(at, bytes, warp, lane, touch);
        }
        Ok(())
    }

    /// Marks bytes as invisible to the asynchronous proxy until a fence.
    #[cold]
    fn mark(&mut self, at: usize, bytes: usize, warp: u32, lane: usize, touch: Touch) {
        let thread = match touch {
            Touch::Read | Touch::Begin => return,
            Touch::LandBulk => 0,
            _ => (1 + 32 * warp as usize + lane) as u16,
        };
        let tags = &mut self.unfenced[at..at + bytes];
        if thread != 0 && tags.iter().any(|tag| *tag != thread) {
            self.wrote[warp as usize].push((at as u32, bytes as u8, lane as u8));
        }
        tags.fill(thread);
    }

    /// A proxy fence executed by some lanes: covers writes of these lanes, and writes of any thread
    /// before the last barrier.
    pub(super) fn fence(&mut self, warp: u32, mask: u32) {
        let now = self.epoch << WARP_BITS;
        for (other, list) in self.wrote.iter_mut().enumerate() {
            list.retain(|(at, bytes, lane)| {
                let range = *at as usize..*at as usize + usize::from(*bytes);
                let is_own = other == warp as usize && mask >> lane & 1 != 0;
                let is_before = self.written[range.clone()].iter().all(|tag| *tag < now);
                if is_own || is_before {
                    let thread = (1 + 32 * other + usize::from(*lane)) as u16;
                    let tags = self.unfenced[range].iter_mut().filter(|tag| **tag == thread);
                    tags.for_each(|tag| *tag = 0);
                }
                !(is_own || is_before)
            });
        }
    }

    /// True if these bytes are visible to the asynchronous proxy.
    pub(super) fn is_fenced(&self, at: usize, bytes: usize) -> bool {
        self.unfenced.get(at..at + bytes).is_none_or(|tags| tags.iter().all(|tag| *tag == 0))
    }

    /// Records a read by the asynchronous proxy for a warp; the bytes must be in range.
    pub(super) fn read_async(&mut self, at: usize, bytes: usize, warp: u32) -> Result<(), Trouble> {
        self.touch(at, bytes, warp, 0, Touch::Read)?;
        if self.is_fenced(at, bytes) {
            return Ok(());
        }
        let text = format!("no fence.proxy.async between the writes and this read of {at:#x}");
        trouble(LAUNCH_FAILED, 1, text)
    }

    /// Records an access; if the access is invalid, records nothing and returns false.
    #[inline(always)]
    fn note<const N: usize>(&mut self, at: usize, warp: u32, touch: Touch) -> bool {
        let now = self.epoch << WARP_BITS;
        let (me, since) = (now | warp as Tag, self.since());
        let (Some(written), Some(read)) =
            (self.written[at..].first_chunk_mut::<N>(), self.read[at..].first_chunk_mut::<N>())
        else {
            return false;
        };
        let is_mine = |tag: Tag| (tag < since) | (tag & !ATOMIC == me);
        let is_atomic = |tag: Tag| (tag >= now) & (tag != IN_FLIGHT) & (tag & ATOMIC != 0);
        let mut bad = false;
        for i in 0..N {
            let (writer, reader) = (written[i], read[i]);
            let is_read_by_others = (reader >= since) & (reader != me);
            bad |= match touch {
                Touch::Read => !is_mine(writer) | (writer == NEVER),
                Touch::Write | Touch::Begin => !is_mine(writer) | is_read_by_others,
                Touch::Atomic => {
                    let plain = !is_mine(writer) | is_read_by_others;
                    (writer == NEVER) | !is_atomic(writer) & plain
                }
                Touch::Land | Touch::LandBulk => false,
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
                Touch::Write | Touch::Land | Touch::LandBulk => written[i] = me,
            }
        }
        true
    }

    /// The smallest tag of accesses that no barrier orders before a new access.
    #[inline(always)]
    fn since(&self) -> Tag {
        if self.is_partial { IN_FLIGHT } else { self.epoch << WARP_BITS }
    }

    #[cold]
    fn explain(&self, at: usize, bytes: usize, warp: u32, lane: usize) -> Result<(), Trouble> {
        let (now, since) = (self.epoch << WARP_BITS, self.since());
        let written = &self.written[at..at + bytes];
        let is_of_others = |tag: &Tag| *tag >= since && tag & !ATOMIC != now | warp as Tag;
        let text = if written.contains(&IN_FLIGHT) {
            "accesses shared bytes of a copy in flight"
        } else if written.iter().any(is_of_others) {
            "accesses shared bytes that another warp wrote since the last barrier"
        } else if written.contains(&NEVER) && !self.read[at..at + bytes].iter().any(is_of_others) {
            "reads uninitialised shared bytes"
        } else {
            "writes shared bytes that another warp read since the last barrier"
        };
        trouble(LAUNCH_FAILED, 1 << lane, format!("{text}, at {at:#x} of shared memory"))
    }
}
