//! A block, whose warps take turns until the next barrier.

use std::collections::HashMap;
use std::sync::Arc;

use super::collective;
use super::counts::{self, Counts, Operation};
use super::coverage;
use super::flight::{Copies, MAX_BARRIERS, Named, PendingWgmmas, Progress, State};
use super::races::Races;
use super::shared::Shared;
use super::tensor;
use super::warp::{Copy16, NO_CALL, Stop, Warp, lanes};
use super::{
    Declared, Fault, LAUNCH_FAILED, LAUNCH_TIMEOUT, Launch, MAX_INSTRUCTIONS, Options, Trouble,
    trouble,
};
use crate::memory::{Allocation, Memory};
use crate::ptx::program::{Op, Program, RESULT, Special};
use crate::random::Random;

/// A range that the launch may access: an allocation, or a declared range.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) first: u64,
    pub(super) end: u64,
    pub(super) writes: bool,
    pub(super) allocation: Arc<Allocation>,
}

/// Consecutive turns without progress after which the block is considered hung.
const MAX_IDLE: u32 = 1 << 14;

/// Executes the blocks of a launch one at a time.
pub(super) struct Block<'a> {
    pub(super) launch: &'a Launch,
    pub(super) program: &'a Program,
    pub(super) memory: &'a Memory,
    pub(super) options: Options,
    pub(super) random: Random,
    pub(super) shared: Shared,
    pub(super) races: Option<Races>,
    /// All declared windows, or, without declarations, the windows accessed so far. `hints` has the
    /// index of the window that each instruction accessed last.
    pub(super) windows: Vec<Window>,
    pub(super) hints: Vec<u32>,
    warps: Vec<Warp>,
    /// By warp; empty if the program has no wgmma.
    pub(super) wgmmas: Vec<PendingWgmmas>,
    pub(super) named: [Named; MAX_BARRIERS],
    pub(super) mbarriers: HashMap<usize, State>,
    pub(super) copies: Copies,
    /// Turns since the last progress.
    idle: u32,
    place: [u32; 3],
    pub(super) index: u32,
    instructions: u64,
    /// Execution counts by instruction, if enabled.
    pub(super) counters: Vec<u64>,
    /// Memory and tensor core requests of warps, if enabled.
    pub(super) counts: Option<Counts>,
}

impl<'a> Block<'a> {
    pub(super) fn new(
        launch: &'a Launch,
        memory: &'a Memory,
        options: Options,
        random: Random,
    ) -> Self {
        let kernel = &launch.kernel;
        let threads: u32 = launch.block.iter().product();
        let local = kernel.local_bytes as usize;
        let warp = |index| Warp::new(index, &kernel.program, local);
        let shared = (kernel.static_shared + launch.dynamic_shared) as usize;
        Self {
            launch,
            program: &kernel.program,
            memory,
            options,
            random,
            shared: Shared::new(shared, options.watch_shared, &kernel.program),
            races: options.watch_global.then(Races::default),
            windows: declared(launch, memory),
            hints: vec![0; kernel.program.steps.len()],
            warps: (0..threads.div_ceil(32)).map(warp).collect(),
            wgmmas: wgmmas(&kernel.program, threads.div_ceil(32) as usize),
            named: Default::default(),
            mbarriers: HashMap::new(),
            copies: Copies::default(),
            idle: 0,
            place: [0; 3],
            index: 0,
            instructions: 0,
            counters: coverage::counters(&kernel.program),
            counts: options.count.then(Counts::default),
        }
    }

    /// Runs one block of the grid.
    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    pub(super) fn run(&mut self, place: [u32; 3], index: u32) -> Result<(), Fault> {
        (self.place, self.index, self.instructions) = (place, index, 0);
        self.shared.begin();
        let threads: u32 = self.launch.block.iter().product();
        self.wgmmas.iter_mut().for_each(PendingWgmmas::begin);
        self.named = Default::default();
        self.mbarriers.clear();
        self.copies.begin(threads.next_multiple_of(32) as usize);
        let mut warps = std::mem::take(&mut self.warps);
        for warp in &mut warps {
            warp.begin(threads - 32 * warp.index, &self.program.unset, &mut self.random);
        }
        let result = self.take_turns(&mut warps);
        self.warps = warps;
        result
    }

    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    fn take_turns(&mut self, warps: &mut [Warp]) -> Result<(), Fault> {
        let mut ready: Vec<usize> = (0..warps.len()).collect();
        let mut waiting: Vec<usize> = vec![];
        loop {
            while !ready.is_empty() {
                let chosen = self.random.below(ready.len());
                let warp = &mut warps[ready[chosen]];
                let turn = 64 + self.random.below(2048) as u32;
                let stop =
                    self.advance(warp, turn).map_err(|trouble| self.fault(warp, &trouble))?;
                if stop == Stop::Poll {
                    self.poll(warp)?;
                    continue;
                }
                self.idle = 0;
                self.instructions += u64::from(turn);
                if self.instructions > MAX_INSTRUCTIONS {
                    let text = "does not end: too many instructions".into();
                    let trouble = Trouble { code: LAUNCH_TIMEOUT, text, lanes: warp.mask };
                    return Err(self.fault(warp, &trouble));
                }
                match stop {
                    Stop::Turn | Stop::Poll => {}
                    Stop::Barrier => waiting.push(ready.swap_remove(chosen)),
                    Stop::End => drop(ready.swap_remove(chosen)),
                }
            }
            if waiting.is_empty() {
                return self.end_copies(&warps[0]);
            }
            self.meet(warps, &waiting)?;
            std::mem::swap(&mut ready, &mut waiting);
        }
    }

    /// Called when a warp waits: completes a pending bulk copy, for which warps may be waiting.
    fn poll(&mut self, warp: &Warp) -> Result<(), Fault> {
        self.idle += 1;
        if self.land_bulk().map_err(|trouble| self.fault(warp, &trouble))? {
            self.idle = 0;
        }
        if self.idle < MAX_IDLE {
            return Ok(());
        }
        let text = "waits forever: no warp of the block makes progress".into();
        Err(self.fault(warp, &Trouble { code: LAUNCH_TIMEOUT, text, lanes: warp.mask }))
    }

    /// Completes the copies at the end of the block; rejects copies that still read the block's
    /// shared memory.
    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    fn end_copies(&mut self, warp: &Warp) -> Result<(), Fault> {
        if let Some((other, lane)) = self.copies.unread() {
            let text =
                format!("the block ends while a bulk copy of warp {other} still reads from it");
            let trouble = Trouble { code: LAUNCH_FAILED, text, lanes: 1 << lane };
            return Err(self.fault(warp, &trouble));
        }
        self.finish_bulk(0).map_err(|trouble| self.fault(warp, &trouble))
    }

    /// Completes a barrier once it has been reached by all warps that have not exited.
    fn meet(&mut self, warps: &mut [Warp], waiting: &[usize]) -> Result<(), Fault> {
        self.shared.barrier();
        let any = waiting.iter().any(|at| warps[*at].vote.is_some_and(|(_, votes)| votes != 0));
        let kind = warps[waiting[0]].vote.is_some();
        for at in waiting {
            let warp = &mut warps[*at];
            if warp.vote.is_some() != kind {
                let text = "waits at a different kind of barrier than other warps".into();
                let trouble = Trouble { code: LAUNCH_FAILED, text, lanes: warp.alive };
                return Err(self.fault(warp, &trouble));
            }
            if let Some((to, _)) = warp.vote.take() {
                let alive = warp.alive;
                warp.put_predicate(to, if any { u32::MAX } else { 0 }, alive);
            }
        }
        Ok(())
    }

    /// Adds the location (kernel, line, block, threads) to an error.
    fn fault(&self, warp: &Warp, trouble: &Trouble) -> Fault {
        let at = warp.pc.min(self.program.steps.len() - 1);
        let step = &self.program.steps[at];
        let source = match step.source_line {
            0 => String::new(),
            line => format!(" (source line {line})"),
        };
        let threads: Vec<String> = lanes(trouble.lanes)
            .take(4)
            .map(|l| (32 * warp.index + l as u32).to_string())
            .collect();
        let sentence = format!(
            "kernel `{}`, PTX line {}{source}, `{}`, block {:?}, thread {}: {}",
            self.launch.kernel.name,
            step.line,
            self.program.opcodes[at],
            self.place,
            threads.join(", "),
            trouble.text
        );
        Fault { code: trouble.code, sentence }
    }

    /// Runs a warp for up to `turn` instructions, or until it waits or exits.
    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    fn advance(&mut self, warp: &mut Warp, turn: u32) -> Result<Stop, Trouble> {
        let program = self.program;
        for _ in 0..turn {
            if warp.pc >= warp.next_other {
                warp.regroup();
            }
            if warp.mask == 0 {
                return Ok(Stop::End);
            }
            let at = warp.pc;
            let step = &program.steps[at];
            let mut mask = warp.mask;
            if let Some((guard, negated)) = step.guard {
                let value = warp.predicate(guard);
                mask &= if negated { !value } else { value };
            }
            if mask != 0
                && let Some(counter) = self.counters.get_mut(at)
            {
                *counter += 1;
            }
            match &step.op {
                Op::Branch(target) => {
                    self.branch(warp, *target as usize, mask);
                    continue;
                }
                Op::Return => {
                    self.end(warp, mask)?;
                    continue;
                }
                _ if mask == 0 => {}
                Op::Call(target, copies) => {
                    let arguments: Vec<_> =
                        copies.iter().copied().filter(|copy| copy.2 & RESULT == 0).collect();
                    self.copy_local(warp, &arguments, mask);
                    for lane in lanes(mask) {
                        warp.calls[lane] = at as u32;
                    }
                    self.branch(warp, *target as usize, mask);
                    continue;
                }
                Op::Barrier | Op::BarrierOr(..) => {
                    all_here(warp, mask, warp.alive)?;
                    if let Op::BarrierOr(to, from) = step.op {
                        warp.vote = Some((to, warp.predicate(from) & mask));
                    }
                    warp.pc += 1;
                    return Ok(Stop::Barrier);
                }
                Op::Hopper(op) => match self.hopper(warp, op, mask)? {
                    Progress::On => {}
                    Progress::Again => return Ok(Stop::Poll),
                    Progress::Later => {
                        warp.pc += 1;
                        return Ok(Stop::Poll);
                    }
                },
                Op::Lanes(form, of) => form.run(warp, of, mask),
                op => self.other(warp, op, mask)?,
            }
            warp.pc += 1;
        }
        Ok(Stop::Turn)
    }

    fn branch(&self, warp: &mut Warp, target: usize, mask: u32) {
        let stay = warp.mask & !mask;
        if stay == 0 {
            warp.pc = target;
            return;
        }
        if mask != 0 {
            warp.set_aside(target, mask);
        }
        warp.mask = stay;
        warp.pc += 1;
    }

    /// Makes lanes return from a call, or exit.
    fn end(&self, warp: &mut Warp, mask: u32) -> Result<(), Trouble> {
        let returning = lanes(mask).filter(|lane| warp.calls[*lane] != NO_CALL);
        let returning = returning.fold(0, |all, lane| all | 1 << lane);
        for lane in lanes(returning) {
            let call = warp.calls[lane] as usize;
            warp.calls[lane] = NO_CALL;
            if let Op::Call(_, copies) = &self.program.steps[call].op {
                let results = copies.iter().filter(|copy| copy.2 & RESULT != 0);
                let results: Vec<_> = results.map(|c| (c.0, c.1, c.2 & !RESULT)).collect();
                self.copy_local(warp, &results, 1 << lane);
            }
            warp.set_aside(call + 1, 1 << lane);
        }
        let ended = mask & !returning;
        let late = |copy: &&Copy16| ended >> copy.lane & 1 != 0;
        if let Some(copy) = warp.copies.iter().find(late) {
            let text = "exits before its cp.async is complete";
            return trouble(LAUNCH_FAILED, 1 << copy.lane, text);
        }
        warp.alive &= !ended;
        warp.mask &= !mask;
        warp.pc += 1;
        if warp.mask == 0 {
            warp.regroup();
        }
        Ok(())
    }

    /// Executes an instruction that accesses memory or other lanes.
    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    fn other(&mut self, warp: &mut Warp, op: &Op, mask: u32) -> Result<(), Trouble> {
        match op {
            Op::Lanes(form, of) => {
                form.run(warp, of, mask);
                Ok(())
            }
            Op::Load(access) => self.load(warp, access, mask),
            Op::Store(access) => self.store(warp, access, mask),
            Op::Atomic(op, access, to) => self.atomic(warp, *op, access, *to, mask),
            Op::LoadMatrix(of) => {
                all_here(warp, mask, u32::MAX)?;
                self.load_matrix(warp, of.0, &of.1, &of.2)
            }
            Op::Mma(is_tf32, of) => {
                all_here(warp, mask, u32::MAX)?;
                if let Some(counts) = &mut self.counts {
                    counts::add_instruction(counts, Operation::Mma);
                }
                if *is_tf32 {
                    tensor::mma8(warp, of, self.options.sums);
                } else {
                    tensor::mma16(warp, of, self.options.sums);
                }
                Ok(())
            }
            Op::CopyAsync(to, from, bytes, length) => {
                self.copy_async(warp, [to, from], *bytes, *length, mask)
            }
            Op::Watched(watched) => {
                let (op, registers) = &**watched;
                self.touch_registers(warp, registers)?;
                self.other(warp, op, mask)
            }
            Op::CommitCopies => {
                for lane in lanes(mask) {
                    warp.groups[lane] += 1;
                }
                Ok(())
            }
            Op::WaitCopies(but) => self.land(warp, *but, mask),
            Op::WaitAllCopies => self.land_all(warp, mask),
            Op::Shuffle(how, of) => collective::shuffle(warp, *how, **of, mask),
            Op::Ballot(of) => collective::ballot(warp, *of, mask),
            Op::Match(of) => collective::find_equal(warp, *of, mask),
            Op::WarpBarrier(named) => collective::meet(warp, *named, mask),
            Op::Special(to, special) => {
                let value = std::array::from_fn(|lane| self.special(*special, warp.index, lane));
                warp.put_word(*to, &value, mask);
                Ok(())
            }
            Op::Clock(to) => {
                let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
                let nanoseconds = now.map_or(0, |time| time.as_nanos() as u64);
                warp.put_double(*to, &[nanoseconds; 32], mask);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn special(&self, special: Special, warp: u32, lane: usize) -> u32 {
        let [x, y, _] = self.launch.block;
        let thread = 32 * warp + lane as u32;
        match special {
            Special::Thread(0) => thread % x,
            Special::Thread(1) => thread / x % y,
            Special::Thread(_) => thread / x / y,
            Special::BlockSize(axis) => self.launch.block[usize::from(axis)],
            Special::Block(axis) => self.place[usize::from(axis)],
            Special::GridSize(axis) => self.launch.grid[usize::from(axis)],
            Special::Lane => lane as u32,
        }
    }
}

/// The windows of the declared ranges, which `cuLaunchKernel` has checked to be allocated.
fn declared(launch: &Launch, memory: &Memory) -> Vec<Window> {
    let window = |declared: &Declared| {
        let (allocation, _) = memory.find(declared.first, declared.bytes as usize)?;
        let (first, end) = (declared.first, declared.first + declared.bytes);
        Some(Window { first, end, writes: declared.writes != 0, allocation })
    };
    launch.declared.iter().flatten().filter_map(window).collect()
}

fn wgmmas(program: &Program, warps: usize) -> Vec<PendingWgmmas> {
    let count = if program.is_async { warps } else { 0 };
    (0..count).map(|_| PendingWgmmas::new(program.lengths.words)).collect()
}

/// Checks that the entire warp executes an `.aligned` instruction.
pub(super) fn all_here(warp: &Warp, mask: u32, wanted: u32) -> Result<(), Trouble> {
    if mask == wanted {
        return Ok(());
    }
    let text = format!("is executed by lanes {mask:#x} instead of {wanted:#x}");
    trouble(LAUNCH_FAILED, warp.mask, text)
}
