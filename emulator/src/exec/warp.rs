//! A warp: its registers, and where its lanes are.
#![allow(unsafe_code)]

use crate::ptx::program::{CONSTANT, Program, Reg};
use crate::random::Random;

pub(super) type Words = [u32; 32];
pub(super) type Doubles = [u64; 32];

/// An asynchronous copy that has not landed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Copy16 {
    pub(super) lane: u8,
    /// The lane's group that it belongs to.
    pub(super) group: u32,
    pub(super) to: usize,
    pub(super) bytes: [u8; 16],
    pub(super) length: u8,
    /// The bytes are there already; nobody may look.
    pub(super) has_landed: bool,
}

/// Why a warp stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// Its turn is over.
    Turn,
    /// It waits for the block.
    Barrier,
    /// It waits for something that others do.
    Poll,
    End,
}

#[derive(Debug)]
pub(super) struct Warp {
    pub(super) index: u32,
    pub(super) words: Vec<Words>,
    pub(super) doubles: Vec<Doubles>,
    pub(super) predicates: Vec<u32>,
    pub(super) carry: u32,
    /// The group of lanes that runs, and its instruction.
    pub(super) pc: usize,
    pub(super) mask: u32,
    /// The other groups.
    pub(super) others: Vec<(usize, u32)>,
    /// Least instruction of the other groups.
    pub(super) next_other: usize,
    /// Lanes that have not ended.
    pub(super) alive: u32,
    pub(super) local: Vec<u8>,
    /// Instruction of the call that each lane is in.
    pub(super) calls: [u32; 32],
    pub(super) copies: Vec<Copy16>,
    /// Groups of copies that each lane has committed.
    pub(super) groups: Words,
    /// A predicate that waits for the block's, and the lanes that are true.
    pub(super) vote: Option<(Reg, u32)>,
    /// The round of a named barrier that it waits for the end of.
    pub(super) round: Option<u32>,
}

/// In place of a call: none.
pub(super) const NO_CALL: u32 = u32::MAX;

impl Warp {
    pub(super) fn new(index: u32, program: &Program, local_bytes: usize) -> Self {
        Self {
            index,
            words: vec![[0; 32]; program.words],
            doubles: vec![[0; 32]; program.doubles],
            predicates: vec![0; program.predicates],
            carry: 0,
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

    /// Begins a block with so many threads in this warp. Registers that the program may read
    /// unset hold what is easily noticed: no numbers as floats and halves, far away as integers.
    pub(super) fn begin(&mut self, threads: u32, unset: &[Vec<Reg>; 3], random: &mut Random) {
        self.alive = if threads >= 32 { u32::MAX } else { (1 << threads) - 1 };
        (self.pc, self.mask) = (0, self.alive);
        self.others.clear();
        self.next_other = usize::MAX;
        self.calls = [NO_CALL; 32];
        self.copies.clear();
        self.groups = [0; 32];
        (self.vote, self.round) = (None, None);
        let [predicates, words, doubles] = unset;
        for place in predicates {
            self.predicates[*place as usize] = random.next() as u32;
        }
        for place in words {
            self.words[*place as usize] = [random.next() as u32 | 0x7fff_ff00; 32];
        }
        for place in doubles {
            self.doubles[*place as usize] = [random.next() | 0x7fff_ffff_ffff_ff00; 32];
        }
        self.local.fill(0xff);
    }

    #[inline(always)]
    pub(super) fn word<'a>(&'a self, program: &'a Program, reg: Reg) -> &'a Words {
        if reg & CONSTANT == 0 {
            &self.words[reg as usize]
        } else {
            &program.word_constants[(reg & !CONSTANT) as usize]
        }
    }

    #[inline(always)]
    pub(super) fn double<'a>(&'a self, program: &'a Program, reg: Reg) -> &'a Doubles {
        if reg & CONSTANT == 0 {
            &self.doubles[reg as usize]
        } else {
            &program.double_constants[(reg & !CONSTANT) as usize]
        }
    }

    #[inline(always)]
    pub(super) fn floats<'a>(&'a self, program: &'a Program, reg: Reg) -> &'a [f32; 32] {
        // SAFETY: any 32 bits are a float, of the same size and alignment.
        unsafe { &*std::ptr::from_ref(self.word(program, reg)).cast() }
    }

    #[inline(always)]
    pub(super) fn doubles<'a>(&'a self, program: &'a Program, reg: Reg) -> &'a [f64; 32] {
        // SAFETY: any 64 bits are a float, of the same size and alignment.
        unsafe { &*std::ptr::from_ref(self.double(program, reg)).cast() }
    }

    #[inline(always)]
    pub(super) fn predicate(&self, reg: Reg) -> u32 {
        match reg {
            CONSTANT => 0,
            reg if reg & CONSTANT != 0 => u32::MAX,
            reg => self.predicates[reg as usize],
        }
    }

    #[inline(always)]
    pub(super) fn put_word(&mut self, reg: Reg, value: &Words, mask: u32) {
        put(&mut self.words[reg as usize], value, mask);
    }

    #[inline(always)]
    pub(super) fn put_double(&mut self, reg: Reg, value: &Doubles, mask: u32) {
        put(&mut self.doubles[reg as usize], value, mask);
    }

    #[inline(always)]
    pub(super) fn put_predicate(&mut self, reg: Reg, value: u32, mask: u32) {
        // A destination that is a constant is one that nobody reads.
        if reg & CONSTANT == 0 {
            let slot = &mut self.predicates[reg as usize];
            *slot = *slot & !mask | value & mask;
        }
    }

    /// Sets a group aside.
    pub(super) fn set_aside(&mut self, pc: usize, mask: u32) {
        match self.others.iter_mut().find(|(at, _)| *at == pc) {
            Some((_, lanes)) => *lanes |= mask,
            None => self.others.push((pc, mask)),
        }
        self.next_other = self.next_other.min(pc);
    }

    /// Runs the group that is behind the others: groups meet where control flow does.
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

#[inline(always)]
fn put<T: Copy>(slot: &mut [T; 32], value: &[T; 32], mask: u32) {
    if mask == u32::MAX {
        *slot = *value;
        return;
    }
    for lane in 0..32 {
        if mask >> lane & 1 != 0 {
            slot[lane] = value[lane];
        }
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
