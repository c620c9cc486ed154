//! The control flow of a kernel: reachability and loops.

use std::collections::BTreeSet;

use super::listing::{Code, Instruction};
use crate::Fault;

/// Instructions without a successor, unless they are guarded.
const ENDS: [&str; 4] = ["BRA", "EXIT", "RET", "KILL"];
/// Jumps to an address in a register: the listing does not give the target.
const INDIRECT: [&str; 5] = ["BRX", "BRXU", "JMX", "JMXU", "JMP"];

/// The control flow of a kernel. Numbers are instruction indices.
#[derive(Debug)]
pub(crate) struct Flow {
    /// Reachable instructions: all but the padding after the code.
    pub(crate) reached: Vec<usize>,
    /// By head.
    pub(crate) loops: Vec<Loop>,
}

/// A natural loop: everything that can return to its head without leaving the head's dominance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Loop {
    /// The only entry.
    pub(crate) head: usize,
    /// Its instructions, including those of inner loops, head first in code order.
    pub(crate) body: BTreeSet<usize>,
}

impl Flow {
    /// Analyses the branches of a kernel's code.
    ///
    /// # Errors
    /// A branch with an unknown target, a loop with two entries.
    pub(crate) fn of(code: &Code) -> Result<Self, Fault> {
        let next = successors(code)?;
        let order = reverse_postorder(&next);
        let mut before = vec![Vec::new(); next.len()];
        for &from in &order {
            for &to in &next[from] {
                before[to].push(from);
            }
        }
        let rank = ranks(&order, next.len());
        let dominator = dominators(&order, &rank, &before);
        let mut loops: Vec<Loop> = Vec::new();
        for &from in &order {
            for &head in next[from].iter().filter(|to| rank[**to] <= rank[from]) {
                if !dominates(&dominator, head, from) {
                    let name = code.name;
                    return Err(Fault(format!("kernel `{name}`: a loop has two ways in")));
                }
                let body = natural_loop(head, from, &before);
                match loops.iter_mut().find(|l| l.head == head) {
                    Some(known) => known.body.extend(body),
                    None => loops.push(Loop { head, body }),
                }
            }
        }
        loops.sort_by_key(|l| l.head);
        let mut reached = order;
        reached.sort_unstable();
        Ok(Self { reached, loops })
    }
}

/// True if the instruction calls a function that returns. The assembler also writes `CALL` for
/// branches out of loops, to labels of the kernel.
pub(crate) fn calls_function(instruction: &Instruction) -> bool {
    instruction.base() == "CALL" && !instruction.label().is_some_and(|l| l.starts_with(".L"))
}

/// The possible successors of each instruction. A called function counts as a successor; its return
/// has no edge, so its instructions are in no loop of the caller.
fn successors(code: &Code) -> Result<Vec<Vec<usize>>, Fault> {
    let last = code.instructions.len();
    let mut next = vec![Vec::new(); last];
    for (at, instruction) in code.instructions.iter().enumerate() {
        let (base, label) = (instruction.base(), instruction.label());
        let fault = |what: &str| {
            let Instruction { opcode, operands, .. } = instruction;
            Err(Fault(format!("kernel `{}`: {what}: {opcode} {operands}", code.name)))
        };
        if INDIRECT.contains(&base) {
            return fault("a branch to an address that a register holds");
        }
        // BSSY only names the reconvergence point; RET names the kernel.
        if let (Some(label), false) = (label, matches!(base, "BSSY" | "RET")) {
            match code.labels.get(label) {
                Some(&to) if to < last => next[at].push(to),
                Some(_) => {}
                None => return fault("a branch out of the code"),
            }
        } else if base == "BRA" {
            return fault("a branch without a label");
        }
        // A branch may have its condition among the operands: `BRA !P0, `(.L_x_3)`.
        let conditional =
            instruction.guarded || base == "BRA" && instruction.operands.contains(',');
        let jumps = base == "CALL" && !calls_function(instruction);
        if (conditional || !(ENDS.contains(&base) || jumps)) && at + 1 < last {
            next[at].push(at + 1);
        }
    }
    Ok(next)
}

/// Everything that the first instruction reaches, in topological order except for loops.
fn reverse_postorder(next: &[Vec<usize>]) -> Vec<usize> {
    let mut order = Vec::new();
    let mut seen = vec![false; next.len()];
    let mut path: Vec<(usize, usize)> = Vec::new();
    if let Some(first) = seen.first_mut() {
        *first = true;
        path.push((0, 0));
    }
    while let Some((at, edge)) = path.last_mut() {
        match next[*at].get(*edge) {
            Some(&to) => {
                *edge += 1;
                if !std::mem::replace(&mut seen[to], true) {
                    path.push((to, 0));
                }
            }
            None => {
                order.push(*at);
                path.pop();
            }
        }
    }
    order.reverse();
    order
}

/// The position of each instruction in the order; unreachable ones come last.
fn ranks(order: &[usize], len: usize) -> Vec<usize> {
    let mut rank = vec![len; len];
    for (place, &at) in order.iter().enumerate() {
        rank[at] = place;
    }
    rank
}

/// The immediate dominator of each instruction; the first is its own. (Cooper, Harvey, Kennedy: A
/// Simple, Fast Dominance Algorithm.)
fn dominators(order: &[usize], rank: &[usize], before: &[Vec<usize>]) -> Vec<usize> {
    const UNKNOWN: usize = usize::MAX;
    let mut dominator = vec![UNKNOWN; rank.len()];
    let Some(&first) = order.first() else { return dominator };
    dominator[first] = first;
    let mut changed = true;
    while std::mem::take(&mut changed) {
        for &at in &order[1..] {
            let known = before[at].iter().copied().filter(|from| dominator[*from] != UNKNOWN);
            let closest = known.reduce(|mut a, mut b| {
                while a != b {
                    if rank[a] > rank[b] {
                        a = dominator[a];
                    } else {
                        b = dominator[b];
                    }
                }
                a
            });
            if let Some(closest) = closest
                && dominator[at] != closest
            {
                dominator[at] = closest;
                changed = true;
            }
        }
    }
    dominator
}

fn dominates(dominator: &[usize], above: usize, mut at: usize) -> bool {
    while at != above && dominator[at] != at {
        at = dominator[at];
    }
    at == above
}

/// The head, and everything that reaches `from` without passing it.
fn natural_loop(head: usize, from: usize, before: &[Vec<usize>]) -> BTreeSet<usize> {
    let mut body = BTreeSet::from([head]);
    let mut todo = vec![from];
    while let Some(at) = todo.pop() {
        if body.insert(at) {
            todo.extend(&before[at]);
        }
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sass::listing::{listing_of, parse};

    fn flow(lines: &[&str]) -> Result<Flow, Fault> {
        Flow::of(&parse(&listing_of("k", lines)).unwrap()[0])
    }

    fn loops(lines: &[&str]) -> Vec<(usize, Vec<usize>)> {
        let found = flow(lines).unwrap().loops;
        found.into_iter().map(|l| (l.head, l.body.into_iter().collect())).collect()
    }

    #[test]
    fn code_without_a_loop_has_none() {
        let lines = ["@P0 BRA `(.L_1)", "MOV R1, R2", ".L_1:", "EXIT", ".L_2:", "BRA `(.L_2)"];
        let flow = flow(&lines).unwrap();
        assert!(flow.loops.is_empty());
        assert_eq!(flow.reached, [0, 1, 2], "the padding behind the code is not reached");
    }

    #[test]
    fn a_branch_within_a_loop_is_part_of_it_and_one_that_leaves_is_not() {
        let lines = [
            "MOV R1, R2",
            ".L_1:",
            "@P0 BRA `(.L_2)",
            "IADD3 R1, R1, R2, RZ",
            ".L_2:",
            "@P1 CALL.REL.NOINC `(.L_3)",
            "BRA `(.L_1)",
            ".L_3:",
            "EXIT",
        ];
        assert_eq!(loops(&lines), [(1, vec![1, 2, 3, 4])]);
    }

    #[test]
    fn loops_within_loops_are_told_apart() {
        let lines = [
            ".L_1:",
            "MOV R1, R2",
            ".L_2:",
            "IADD3 R1, R1, R2, RZ",
            "@P0 BRA `(.L_2)",
            "BRA !P1, `(.L_1)",
            "EXIT",
        ];
        assert_eq!(loops(&lines), [(0, vec![0, 1, 2, 3]), (1, vec![1, 2])]);
    }

    #[test]
    fn two_ways_back_to_one_head_are_one_loop() {
        let lines = ["NOP", ".L_1:", "@P0 BRA `(.L_1)", "MOV R1, R2", "@P1 BRA `(.L_1)", "EXIT"];
        assert_eq!(loops(&lines), [(1, vec![1, 2, 3])]);
    }

    #[test]
    fn a_function_is_no_part_of_the_loop_that_calls_it() {
        let lines = [
            ".L_1:",
            "CALL.REL.NOINC `($k$slow)",
            "@P0 BRA `(.L_1)",
            "EXIT",
            "$k$slow:",
            "FMUL R1, R1, R2",
            "RET.REL.NODEC R2 `(k)",
        ];
        assert_eq!(loops(&lines), [(0, vec![0, 1])]);
        assert_eq!(flow(&lines).unwrap().reached, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn where_threads_meet_again_is_no_branch() {
        let lines = ["BSSY B0, `(.L_1)", "EXIT", ".L_1:", "NOP"];
        assert_eq!(flow(&lines).unwrap().reached, [0, 1]);
    }

    #[test]
    fn flow_that_cannot_be_followed_is_a_fault() {
        let fault = |lines: &[&str]| flow(lines).unwrap_err().0;
        assert_eq!(
            fault(&["BRX R2 -0x10"]),
            "kernel `k`: a branch to an address that a register holds: BRX R2 -0x10"
        );
        assert!(fault(&["BRA `(.L_9)"]).contains("a branch out of the code"));
        assert!(fault(&["BRA 0x20"]).contains("a branch without a label"));
        let two_ways =
            ["@P0 BRA `(.L_2)", ".L_1:", "NOP", ".L_2:", "NOP", "@P1 BRA `(.L_1)", "EXIT"];
        assert_eq!(fault(&two_ways), "kernel `k`: a loop has two ways in");
    }
}
