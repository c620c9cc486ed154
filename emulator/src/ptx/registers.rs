//! Register allocation: thousands of virtual registers share a few hundred physical ones.

use super::flow::{Flow, defines};
use super::parse::{Class, Instruction, Operand};
use super::program::Reg;
use crate::lanes::Lengths;

/// The physical register of each virtual register, and the size of each register file.
pub(super) struct Places {
    pub(super) of: Vec<Reg>,
    pub(super) lengths: Lengths,
    /// By class: registers that may be read before they are set.
    pub(super) unset: [Vec<Reg>; 3],
}

/// Calls `see` for each register of an instruction; the second argument is true if the register is
/// written.
pub(super) fn visit(instruction: &Instruction, mut see: impl FnMut(u32, bool)) {
    fn each(operand: &Operand, written: bool, see: &mut impl FnMut(u32, bool)) {
        match operand {
            Operand::Register(register) => see(*register, written),
            Operand::Pair(first, second) => {
                see(*first, written);
                see(*second, written);
            }
            Operand::Address(base, _) => each(base, false, see),
            Operand::Vector(list) => list.iter().for_each(|operand| each(operand, written, see)),
            _ => {}
        }
    }
    if let Some((guard, _)) = instruction.guard {
        see(guard, false);
    }
    for (i, operand) in instruction.operands.iter().enumerate() {
        if i == 0 && is_wgmma(instruction) {
            each(operand, false, &mut see);
        }
        each(operand, i == 0 && defines(&instruction.opcode), &mut see);
    }
}

fn is_wgmma(instruction: &Instruction) -> bool {
    instruction.opcode.starts_with("wgmma.mma_async")
}

/// By register, true if a wgmma uses it; empty if the kernel has no wgmma.
pub(super) fn held_by_wgmma(flow: &Flow) -> Vec<bool> {
    let mut list = Vec::new();
    for instruction in flow.body.iter().filter(|instruction| is_wgmma(instruction)) {
        list.resize(flow.registers.len(), false);
        visit(instruction, |register, _| {
            list[register as usize] |= flow.registers[register as usize] == Class::Word;
        });
    }
    list
}

/// Assigns registers by live ranges.
pub(super) fn assign(flow: &Flow) -> Places {
    let (mut spans, at_entry) = spans(flow);
    // A wgmma in flight may write its registers at any time, so they are not shared.
    for (register, _) in held_by_wgmma(flow).iter().enumerate().filter(|(_, is_one)| **is_one) {
        spans[register] = Some((0, flow.body.len()));
    }
    let mut order: Vec<usize> = (0..spans.len()).filter(|r| spans[*r].is_some()).collect();
    order.sort_by_key(|register| spans[*register]);
    let mut of = vec![0; spans.len()];
    // By class: free registers, registers in use with the end of their live range, and the number
    // of registers.
    let mut free: [Vec<Reg>; 3] = Default::default();
    let mut used: [Vec<(usize, Reg)>; 3] = Default::default();
    let mut count = [0; 3];
    for register in order {
        let Some((start, end)) = spans[register] else { continue };
        let class = flow.registers[register] as usize;
        used[class].retain(|(last, place)| {
            let stays = *last >= start;
            if !stays {
                free[class].push(*place);
            }
            stays
        });
        let place = free[class].pop().unwrap_or_else(|| {
            count[class] += 1;
            count[class] - 1
        });
        of[register] = place;
        used[class].push((end, place));
    }
    let [predicates, words, doubles] = count.map(usize::from);
    let mut unset: [Vec<Reg>; 3] = Default::default();
    at_entry.for_each(|register| unset[flow.registers[register] as usize].push(of[register]));
    Places { of, lengths: Lengths { words, doubles, predicates }, unset }
}

const _: () = assert!(
    Class::Predicate as usize == 0 && Class::Word as usize == 1 && Class::Double as usize == 2
);

type Bits = Vec<u64>;

/// First and last instruction at which a register is live; `None` if it is not used.
type Span = Option<(usize, usize)>;

/// The live ranges of all registers, and the registers that are live at the kernel's entry.
fn spans(flow: &Flow) -> (Vec<Span>, impl Iterator<Item = usize>) {
    let starts = block_starts(flow);
    let words = flow.registers.len().div_ceil(64);
    let count = starts.len();
    let end_of = |block: usize| starts.get(block + 1).copied().unwrap_or(flow.body.len());
    let block_at = |instruction: usize| starts.partition_point(|start| *start <= instruction) - 1;
    let mut uses: Vec<Bits> = vec![vec![0; words]; count];
    let mut kills: Vec<Bits> = vec![vec![0; words]; count];
    for block in 0..count {
        for instruction in &flow.body[starts[block]..end_of(block)] {
            visit(instruction, |register, written| {
                let (word, bit) = (register as usize / 64, 1 << (register % 64));
                if !written && kills[block][word] & bit == 0 {
                    uses[block][word] |= bit;
                }
            });
            // A register that a guarded instruction may leave unchanged stays live.
            visit(instruction, |register, written| {
                let (word, bit) = (register as usize / 64, 1 << (register % 64));
                if !written {
                    return;
                }
                let may_stay = instruction.guard.is_some() && kills[block][word] & bit == 0;
                let set = if may_stay { &mut uses } else { &mut kills };
                set[block][word] |= bit;
            });
        }
    }
    let next: Vec<Vec<usize>> = (0..count)
        .map(|block| flow.next(end_of(block) - 1).into_iter().map(block_at).collect())
        .collect();
    let (mut live_in, mut live_out) = (uses.clone(), vec![vec![0; words]; count]);
    let mut changed = true;
    while changed {
        changed = false;
        for block in (0..count).rev() {
            for follower in &next[block] {
                for word in 0..words {
                    let more = live_in[*follower][word] & !live_out[block][word];
                    if more != 0 {
                        changed = true;
                        live_out[block][word] |= more;
                        live_in[block][word] |= more & !kills[block][word];
                    }
                }
            }
        }
    }
    let mut spans = vec![None; flow.registers.len()];
    let mut extend = |register: usize, at: usize| {
        let span = spans[register].get_or_insert((at, at));
        *span = (span.0.min(at), span.1.max(at));
    };
    for block in 0..count {
        let end = end_of(block);
        for (at, instruction) in flow.body.iter().enumerate().take(end).skip(starts[block]) {
            visit(instruction, |register, _| extend(register as usize, at));
        }
        for (set, at) in [(&live_in[block], starts[block]), (&live_out[block], end - 1)] {
            for (word, bits) in set.iter().enumerate() {
                let mut left = *bits;
                while left != 0 {
                    extend(word * 64 + left.trailing_zeros() as usize, at);
                    left &= left - 1;
                }
            }
        }
    }
    let at_entry = live_in.swap_remove(0);
    let is_unset = move |register: &usize| at_entry[register / 64] >> (register % 64) & 1 != 0;
    (spans, (0..flow.registers.len()).filter(is_unset))
}

/// Instructions at which a basic block begins.
fn block_starts(flow: &Flow) -> Vec<usize> {
    let mut is_start = vec![false; flow.body.len() + 1];
    is_start[0] = true;
    for (at, instruction) in flow.body.iter().enumerate() {
        if matches!(&*instruction.opcode, "bra" | "bra.uni" | "ret" | "call.uni" | "exit") {
            is_start[at + 1] = true;
            for target in flow.next(at) {
                is_start[target] = true;
            }
        }
    }
    (0..flow.body.len()).filter(|at| is_start[*at]).collect()
}
