//! A warp: its registers, and the program counters of its lanes.

use std::ops::{Deref, DerefMut};

use crate::lanes::{Reg, Registers, Words};
use crate::ptx::program::Program;
use crate::random::Random;

/// An asynchronous copy that has not completed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Copy16 {
    pub(super) lane: u8,
    /// Number of the lane's copy group that contains the copy.
    pub(super) group: u32,
    pub(super) to: usize,
    pub(super) bytes: [u8; 16],
    pub(super) length: u8,
    /// The bytes are already in shared memory, but may not be read yet.
    pub(super) has_landed: bool,
}

/// The reason why a warp stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// Its turn has ended.
    Turn,
    /// It waits at a barrier of the block.
    Barrier,
    /// It waits for other warps or copies.
    Poll,
    End,
}

#[derive(Debug)]
pub(super) struct Warp {
    pub(super) index: u32,
    pub(super) registers: Registers,
    /// The program counter of the lanes that are running.
    pub(super) pc: usize,
    pub(super) mask: u32,
    /// The diverged groups of lanes: program counter and lane mask.
    pub(super) others: Vec<(usize, u32)>,
    /// Lowest program counter in `others`.
    pub(super) next_other: usize,
    /// Lanes that have not exited.
    pub(super) alive: u32,
    pub(super) local: Vec<u8>,
    /// By lane, the call instruction whose function the lane executes, or [`NO_CALL`].
    pub(super) calls: [u32; 32],
    pub(super) copies: Vec<Copy16>,
    /// Number of copy groups committed by each lane.
    pub(super) groups: Words,
    /// While the warp waits at a barrier with a reduction: the destination predicate, and the lanes
    /// whose source is true.
    pub(super) vote: Option<(Reg, u32)>,
    /// The phase of a named barrier that the warp waits for.
    pub(super) round: Option<u32>,
}

/// Value for a lane that executes no call.
pub(super) const NO_CALL: u32 = u32::MAX;

impl Warp {
    pub(super) fn new(index: u32, program: &Program, local_bytes: usize) -> Self {
        Self {
            index,
            registers: Registers::new(program.lengths, &program.constants),
            pc: 0,
            mask: 0,
            others: vec![],
            next_other: usize::MAX,
            alive: 0,
            local: vec![0xff; 32 * local_bytes],
            calls: [NO_CALL; 32],
            copies: vec![],
            groups: [0; 32],
            vote: None,
            round: None,
        }
    }

    /// Begins a block in which this warp has `threads` threads.
    pub(super) fn begin(&mut self, threads: u32, unset: &[Vec<Reg>; 3], random: &mut Random) {
        self.alive = if threads >= 32 { u32::MAX } else { (1 << threads) - 1 };
        (self.pc, self.mask) = (0, self.alive);
        self.others.clear();
        self.next_other = usize::MAX;
        self.calls = [NO_CALL; 32];
        self.copies.clear();
        self.groups = [0; 32];
        (self.vote, self.round) = (None, None);
        self.registers.unset(unset, random);
        self.local.fill(0xff);
    }

    /// Adds a group of lanes to `others`.
    pub(super) fn set_aside(&mut self, pc: usize, mask: u32) {
        match self.others.iter_mut().find(|(at, _)| *at == pc) {
            Some((_, lanes)) => *lanes |= mask,
            None => self.others.push((pc, mask)),
        }
        self.next_other = self.next_other.min(pc);
    }

    /// Switches to the group with the lowest program counter, merged with all groups at the same
    /// program counter: lanes reconverge where their control flow does.
    pub(super) fn regroup(&mut self) {
        if self.mask != 0 {
            let (pc, mask) = (self.pc, self.mask);
            self.set_aside(pc, mask);
        }
        let least = (0..self.others.len()).min_by_key(|i| self.others[*i].0);
        (self.pc, self.mask) = match least {
            Some(i) => self.others.swap_remove(i),
            None => (0, 0),
        };
        self.next_other = self.others.iter().map(|(pc, _)| *pc).min().unwrap_or(usize::MAX);
    }
}

impl Deref for Warp {
    type Target = Registers;

    #[inline(always)]
    fn deref(&self) -> &Registers {
        &self.registers
    }
}

impl DerefMut for Warp {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Registers {
        &mut self.registers
    }
}

/// The lanes of a mask.
pub(super) fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    let mut left = mask;
    std::iter::from_fn(move || {
        let lane = left.trailing_zeros() as usize;
        (left != 0).then(|| {
            left &= left - 1;
            lane
        })
    })
}
