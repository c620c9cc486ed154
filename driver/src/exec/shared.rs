//! Shared memory of a block: its bytes, and who has touched them since the last barrier.

use super::{LAUNCH_FAILED, Trouble, trouble};

/// What is known of four bytes, in one word: bits for each byte, warps, and barriers.
#[derive(Debug, Clone, Copy)]
struct Cell(u64);

/// Of more warps than one.
const SEVERAL: u64 = 0xff;
/// Barriers are counted up to here, and then from 1 again.
const MAX_EPOCH: u64 = (1 << 15) - 1;

/// Fields: their lowest bit and their length.
const VALID: (u32, u32) = (0, 4);
const IN_FLIGHT: (u32, u32) = (4, 4);
const WRITTEN: (u32, u32) = (8, 4);
const READ: (u32, u32) = (12, 4);
const WRITER: (u32, u32) = (16, 8);
const READER: (u32, u32) = (24, 8);
const WRITE_EPOCH: (u32, u32) = (32, 15);
const READ_EPOCH: (u32, u32) = (47, 15);
const ATOMIC: (u32, u32) = (62, 1);

impl Cell {
    #[inline(always)]
    fn get(self, (at, length): (u32, u32)) -> u64 {
        self.0 >> at & ((1 << length) - 1)
    }

    #[inline(always)]
    fn set(&mut self, (at, length): (u32, u32), value: u64) {
        self.0 = self.0 & !(((1 << length) - 1) << at) | value << at;
    }
}

impl Cell {
    /// What nearly all accesses are: of bytes that are there, and that nobody else touched since
    /// the last barrier (or only read). False if it is none, and nothing is noted.
    #[inline(always)]
    fn touched_as_usual(&mut self, epoch: u64, warp: u64, touch: Touch) -> bool {
        let (written, read) = (self.get(WRITE_EPOCH), self.get(READ_EPOCH));
        match touch {
            Touch::Read if self.0 & 0xff == 0xf && written != epoch => {
                if read != epoch {
                    let of_read = 0xf << READ.0 | 0xff << READER.0 | 0x7fff << READ_EPOCH.0;
                    let now = 0xf << READ.0 | warp << READER.0 | epoch << READ_EPOCH.0;
                    self.0 = self.0 & !of_read | now;
                    return true;
                }
                let reader = self.get(READER);
                self.get(READ) == 0xf && (reader == warp || reader == SEVERAL)
            }
            Touch::Write if self.0 & 0xf0 == 0 && read != epoch => {
                if written == epoch && self.get(WRITER) != warp {
                    return false;
                }
                let of_write = 0xff
                    | 0xf << WRITTEN.0
                    | 0xff << WRITER.0
                    | 0x7fff << WRITE_EPOCH.0
                    | 1 << ATOMIC.0;
                let now = 0xf | 0xf << WRITTEN.0 | warp << WRITER.0 | epoch << WRITE_EPOCH.0;
                self.0 = self.0 & !of_write | now;
                true
            }
            _ => false,
        }
    }
}

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
    cells: Vec<Cell>,
    epoch: u64,
    is_watched: bool,
}

impl Shared {
    pub(super) fn new(bytes: usize, is_watched: bool) -> Self {
        let cells = if is_watched { vec![Cell(0); bytes.div_ceil(4)] } else { vec![] };
        Self { bytes: vec![0xff; bytes], cells, epoch: 1, is_watched }
    }

    /// Begins a block: nothing is written.
    pub(super) fn begin(&mut self) {
        self.bytes.fill(0xff);
        self.cells.fill(Cell(0));
        self.epoch = 1;
    }

    /// All warps have met.
    pub(super) fn barrier(&mut self) {
        if self.epoch == MAX_EPOCH {
            for cell in &mut self.cells {
                cell.set(WRITE_EPOCH, 0);
                cell.set(READ_EPOCH, 0);
            }
            self.epoch = 0;
        }
        self.epoch += 1;
    }

    /// Notes that a warp touches bytes, which are inside.
    #[inline(always)]
    pub(super) fn touch(
        &mut self,
        at: usize,
        bytes: usize,
        warp: u32,
        lane: usize,
        touch: Touch,
    ) -> Result<(), Trouble> {
        if !self.is_watched {
            return Ok(());
        }
        let mut cell = at / 4;
        if at.is_multiple_of(4) && bytes.is_multiple_of(4) {
            for _ in 0..bytes / 4 {
                self.one(cell, 0xf, warp, lane, touch)?;
                cell += 1;
            }
            return Ok(());
        }
        let (mut at, end) = (at, at + bytes);
        while at < end {
            let length = (4 - at % 4).min(end - at);
            self.one(at / 4, ((1 << length) - 1) << (at % 4), warp, lane, touch)?;
            at += length;
        }
        Ok(())
    }

    #[inline(always)]
    fn one(
        &mut self,
        index: usize,
        mask: u64,
        warp: u32,
        lane: usize,
        touch: Touch,
    ) -> Result<(), Trouble> {
        let (epoch, warp) = (self.epoch, u64::from(warp));
        let cell = &mut self.cells[index];
        if mask == 0xf && cell.touched_as_usual(epoch, warp, touch) {
            return Ok(());
        }
        let written_now = cell.get(WRITE_EPOCH) == epoch;
        let read_now = cell.get(READ_EPOCH) == epoch;
        let by_others = |who: u64| who != warp;
        let both_atomic = touch == Touch::Atomic && cell.get(ATOMIC) != 0;
        let clash = written_now
            && by_others(cell.get(WRITER))
            && (cell.get(WRITER) != SEVERAL || cell.get(ATOMIC) != 0)
            && cell.get(WRITTEN) & mask != 0
            && !both_atomic;
        let text = if cell.get(IN_FLIGHT) & mask != 0 && touch != Touch::Land {
            "touches shared bytes that a cp.async still brings"
        } else if clash && touch != Touch::Land {
            "touches shared bytes that another warp wrote since the last barrier"
        } else if matches!(touch, Touch::Read | Touch::Atomic) && cell.get(VALID) & mask != mask {
            "reads shared bytes that nobody wrote"
        } else if touch != Touch::Read
            && touch != Touch::Land
            && !both_atomic
            && read_now
            && by_others(cell.get(READER))
            && cell.get(READ) & mask != 0
        {
            "writes shared bytes that another warp read since the last barrier"
        } else {
            ""
        };
        if !text.is_empty() {
            let text = format!("{text}, at {:#x} of shared memory", index * 4);
            return trouble(LAUNCH_FAILED, 1 << lane, text);
        }
        if touch == Touch::Read {
            let same = read_now && cell.get(READER) == warp;
            let read = if read_now { cell.get(READ) | mask } else { mask };
            cell.set(READ, read);
            cell.set(READER, if same || !read_now { warp } else { SEVERAL });
            cell.set(READ_EPOCH, epoch);
            return Ok(());
        }
        let others = written_now && cell.get(WRITER) != warp;
        let written = if written_now { cell.get(WRITTEN) | mask } else { mask };
        cell.set(WRITTEN, written);
        cell.set(WRITER, if others { SEVERAL } else { warp });
        cell.set(WRITE_EPOCH, epoch);
        cell.set(ATOMIC, u64::from(touch == Touch::Atomic));
        let (valid, in_flight) = (cell.get(VALID), cell.get(IN_FLIGHT));
        match touch {
            Touch::Begin => {
                cell.set(VALID, valid & !mask);
                cell.set(IN_FLIGHT, in_flight | mask);
            }
            _ => {
                cell.set(VALID, valid | mask);
                cell.set(IN_FLIGHT, in_flight & !mask);
            }
        }
        Ok(())
    }
}
