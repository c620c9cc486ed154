//! State of a block's asynchronous work: wgmmas, barriers, copies.

use super::{LAUNCH_FAILED, Trouble, trouble};

/// Outcome of an instruction that may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    On,
    /// It is executed again, after other warps have run.
    Again,
    /// It is complete, but other warps run first.
    Later,
}

/// Extent of k in one wgmma.
pub(super) const DEPTH: usize = 16;
/// Tag of a register that ordinary instructions have accessed since the last `wgmma.fence`.
pub(super) const ORDINARY: u16 = u16::MAX;

pub(super) type Row = [u16; DEPTH];

/// A wgmma in flight, with its operands' values when it was issued.
#[derive(Debug)]
pub(super) struct Flying {
    /// Index of its instruction.
    pub(super) step: usize,
    pub(super) group: u32,
    pub(super) left: Option<Source>,
    pub(super) right: Source,
    pub(super) adds: bool,
    pub(super) a: Vec<Row>,
    pub(super) b: Vec<Row>,
    /// True once a wait has found the operands unchanged; after that they may be overwritten.
    pub(super) is_read: bool,
}

/// The wgmmas that one warp has in flight.
#[derive(Debug, Default)]
pub(super) struct PendingWgmmas {
    pub(super) flying: Vec<Flying>,
    pub(super) committed: u32,
    /// By register: [`ORDINARY`]; or, if only wgmmas accessed it since the last fence, their number
    /// of columns; or 0 if it was not accessed since then.
    pub(super) touched: Vec<u16>,
}

impl PendingWgmmas {
    pub(super) fn new(words: usize) -> Self {
        Self { flying: vec![], committed: 0, touched: vec![ORDINARY; words] }
    }

    pub(super) fn begin(&mut self) {
        self.flying.clear();
        self.committed = 0;
        self.touched.fill(ORDINARY);
    }
}

/// Rows of an operand in shared memory, located by a descriptor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source {
    pub(super) start: usize,
    pub(super) leading: usize,
    pub(super) stride: usize,
    /// Swizzle width in bytes; 16 without a swizzle.
    pub(super) line: usize,
    pub(super) transposed: bool,
    pub(super) first: usize,
    pub(super) rows: usize,
}

impl Source {
    /// Decodes a descriptor (PTX ISA, "matrix descriptor format").
    pub(super) fn of(
        bits: u64,
        transposed: bool,
        first: usize,
        rows: usize,
    ) -> Result<Self, Trouble> {
        if bits >> 49 & 7 != 0 {
            return trouble(LAUNCH_FAILED, 1, "a descriptor's base offset is not modelled");
        }
        let field = |at: u32| (bits >> at & 0x3fff) as usize * 16;
        let line = [16, 128, 64, 32][(bits >> 62) as usize];
        let (start, leading, stride) = (field(0), field(16), field(32));
        Ok(Self { start, leading, stride, line, transposed, first, rows })
    }

    /// Offset of a 16-byte piece: part `part` of row `line`, or, if transposed, of the column with
    /// k = `line`. CUTLASS describes the layouts in `cute/arch/mma_sm90_desc.hpp`.
    pub(super) fn place(&self, line: usize, part: usize) -> usize {
        let Self { start, leading, stride, line: width, .. } = *self;
        let (group, within) = (line / 8, line % 8 * width);
        let offset = match (self.transposed, width) {
            (false, 16) => group * stride + within + part * leading,
            (false, _) => group * stride + within + part * 16,
            (true, 16) => group * leading + within + part * stride,
            (true, _) => {
                let parts = width / 16;
                group * stride + within + part % parts * 16 + part / parts * leading
            }
        };
        let at = start + offset;
        at ^ (at >> 7 & (width / 16 - 1)) << 4
    }

    /// Line and part of each 16-byte piece of the operand.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (rows, lines) = (self.first..self.first + self.rows, 0..DEPTH);
        let (lines, parts) = match self.transposed {
            false => (rows, 0..DEPTH / 8),
            true => (lines, rows.start / 8..rows.end / 8),
        };
        lines.flat_map(move |line| parts.clone().map(move |part| (line, part)))
    }
}

/// Maximum arrivals and maximum bytes of a phase (PTX ISA, "mbarrier").
pub(super) const MAX_COUNT: u32 = (1 << 20) - 1;
/// An mbarrier.
#[derive(Debug, Clone, Copy)]
pub(super) struct State {
    pub(super) count: u32,
    pub(super) pending: u32,
    /// Expected bytes minus arrived bytes; negative if more arrived than expected so far.
    pub(super) bytes: i64,
    pub(super) phase: u64,
    /// The warp that initialised the barrier, and in `made` the value of `Shared::barriers` at that
    /// time.
    pub(super) maker: u32,
    pub(super) made: u64,
    /// True if a fence has made the initialisation visible to the asynchronous proxy.
    pub(super) is_fenced: bool,
}

impl State {
    /// Ends the phase, and returns true, if no arrivals and bytes are pending.
    pub(super) fn settle(&mut self) -> bool {
        let is_complete = self.pending == 0 && self.bytes == 0;
        if is_complete {
            self.pending = self.count;
            self.phase += 1;
        }
        is_complete
    }

    pub(super) fn arrive(&mut self, count: u32) -> Result<bool, &'static str> {
        if count == 0 || count > self.pending {
            return Err("more arrivals than the phase of the barrier expects");
        }
        self.pending -= count;
        Ok(self.settle())
    }

    pub(super) fn expect(&mut self, bytes: u32) -> Result<(), &'static str> {
        self.bytes += i64::from(bytes);
        if self.bytes > MAX_COUNT.into() {
            return Err("the barrier expects more bytes than it can count");
        }
        Ok(())
    }
}

/// Number of named barriers of a block.
pub(super) const MAX_BARRIERS: usize = 16;

/// One named barrier.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Named {
    pub(super) arrived: u32,
    pub(super) expected: u32,
    /// Number of completed phases.
    pub(super) rounds: u32,
}

pub(super) type Piece = [u8; 16];

/// A line of a copy: its global address, and the range of its bytes that is inside the tensor.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) global: u64,
    pub(super) inside: std::ops::Range<usize>,
    pub(super) bytes: usize,
}

/// A copy to shared memory that has not completed.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) warp: u32,
    pub(super) lane: usize,
    pub(super) barrier: usize,
    pub(super) pieces: Vec<(usize, Piece)>,
}

/// A copy to global memory for which no wait has completed.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) warp: u32,
    pub(super) lane: usize,
    pub(super) group: u32,
    pub(super) pieces: Vec<(usize, Piece)>,
    pub(super) lines: Vec<Line>,
    pub(super) is_read: bool,
    pub(super) is_written: bool,
}

/// The bulk copies of a block that are in flight.
#[derive(Debug, Default)]
pub(super) struct Copies {
    pub(super) loads: Vec<Load>,
    pub(super) stores: Vec<Store>,
    /// Number of groups committed by each thread.
    pub(super) groups: Vec<u32>,
}

impl Copies {
    pub(super) fn begin(&mut self, threads: usize) {
        self.loads.clear();
        self.stores.clear();
        self.groups.clear();
        self.groups.resize(threads, 0);
    }

    /// Warp and lane of a copy to global memory that may still read shared memory.
    pub(super) fn unread(&self) -> Option<(u32, usize)> {
        let left = self.stores.iter().find(|store| !store.is_read);
        left.map(|store| (store.warp, store.lane))
    }
}
