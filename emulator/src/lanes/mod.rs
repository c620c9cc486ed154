//! Registers of a warp, for 32 lanes at once, and the instructions that access only registers.
// Lanes are visited by index, not by iterators: inlined loops are vectorised for the features of
// their caller.
#![allow(clippy::needless_range_loop)]

mod arithmetic;
pub(crate) mod float;
mod forms;

use std::sync::Arc;

use crate::random::Random;
pub(crate) use forms::{Form, MAX_REGISTERS, find, outline};

/// The number of a register in its file, or, with bit [`CONSTANT`], the number of a constant.
/// Predicates have two constants, false and true.
pub(crate) type Reg = u16;

/// Bit that marks a constant's number.
pub(crate) const CONSTANT: Reg = 1 << 15;

pub(crate) type Words = [u32; 32];
pub(crate) type Doubles = [u64; 32];

/// Constants of a program, one copy per lane.
#[derive(Debug, Default)]
pub(crate) struct Constants {
    pub(crate) words: Vec<Words>,
    pub(crate) doubles: Vec<Doubles>,
}

/// Lengths of the register files of a warp.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Lengths {
    pub(crate) words: usize,
    pub(crate) doubles: usize,
    pub(crate) predicates: usize,
}

/// The registers of a warp, and the constants of its program.
#[derive(Debug)]
pub(crate) struct Registers {
    words: Vec<Words>,
    doubles: Vec<Doubles>,
    predicates: Vec<u32>,
    /// The carry flag of each lane.
    carry: u32,
    constants: Arc<Constants>,
}

/// True if this processor has the vector features that the interpreter is compiled for.
pub(crate) fn is_supported() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
}

impl Registers {
    pub(crate) fn new(lengths: Lengths, constants: &Arc<Constants>) -> Self {
        Self {
            words: vec![[0; 32]; lengths.words],
            doubles: vec![[0; 32]; lengths.doubles],
            predicates: vec![0; lengths.predicates],
            carry: 0,
            constants: constants.clone(),
        }
    }

    /// Fills the given registers, which may be read before they are set, with conspicuous random
    /// values: NaN as floats, large as integers.
    pub(crate) fn unset(&mut self, [predicates, words, doubles]: &[Vec<Reg>; 3], by: &mut Random) {
        for place in predicates {
            self.predicates[*place as usize] = by.next() as u32;
        }
        for place in words {
            self.words[*place as usize] = [by.next() as u32 | 0x7fff_ff00; 32];
        }
        for place in doubles {
            self.doubles[*place as usize] = [by.next() | 0x7fff_ffff_ffff_ff00; 32];
        }
    }

    #[inline(always)]
    pub(crate) fn word(&self, reg: Reg) -> &Words {
        if reg & CONSTANT == 0 {
            &self.words[reg as usize]
        } else {
            &self.constants.words[(reg & !CONSTANT) as usize]
        }
    }

    #[inline(always)]
    pub(crate) fn double(&self, reg: Reg) -> &Doubles {
        if reg & CONSTANT == 0 {
            &self.doubles[reg as usize]
        } else {
            &self.constants.doubles[(reg & !CONSTANT) as usize]
        }
    }

    #[inline(always)]
    pub(crate) fn predicate(&self, reg: Reg) -> u32 {
        match reg {
            CONSTANT => 0,
            reg if reg & CONSTANT != 0 => u32::MAX,
            reg => self.predicates[reg as usize],
        }
    }

    #[inline(always)]
    pub(crate) fn put_word(&mut self, reg: Reg, value: &Words, mask: u32) {
        put(&mut self.words[reg as usize], value, mask);
    }

    #[inline(always)]
    pub(crate) fn put_double(&mut self, reg: Reg, value: &Doubles, mask: u32) {
        put(&mut self.doubles[reg as usize], value, mask);
    }

    #[inline(always)]
    pub(crate) fn put_predicate(&mut self, reg: Reg, value: u32, mask: u32) {
        // A constant as the destination means that the result is unused.
        if reg & CONSTANT == 0 {
            let slot = &mut self.predicates[reg as usize];
            *slot = *slot & !mask | value & mask;
        }
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
