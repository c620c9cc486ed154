//! `wgmma`: its operands are in shared memory, its accumulators in registers; it is in flight until
//! a wait.

use super::block::Block;
use super::flight::{DEPTH, Flying, ORDINARY, Progress, Row, Source};
use super::tensor;
use super::warp::Warp;
use super::{LAUNCH_FAILED, Trouble, trouble};
use crate::lanes::float;
use crate::ptx::hopper::{Hopper, Left, Wgmma};
use crate::ptx::program::{Op, Reg};

/// Warps of a warpgroup.
const WARPS: usize = 4;

#[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
fn wide(row: &Row, is_brain: bool, negated: bool) -> [f32; DEPTH] {
    let pairs = std::array::from_fn(|i| u32::from(row[2 * i]) | u32::from(row[2 * i + 1]) << 16);
    let wide = match is_brain {
        true => row.map(|bits| f32::from_bits(u32::from(bits) << 16)),
        false => float::widen_pairs(&pairs),
    };
    if negated { wide.map(|value| -value) } else { wide }
}

impl Block<'_> {
    fn wgmma_of(&self, step: usize) -> Option<&Wgmma> {
        match &self.program.steps[step].op {
            Op::Hopper(hopper) => match &**hopper {
                Hopper::Wgmma(wgmma) => Some(wgmma),
                _ => None,
            },
            _ => None,
        }
    }

    /// Reads an operand; checks that its bytes are written and visible to the asynchronous proxy.
    fn factor(&mut self, warp: u32, source: &Source) -> Result<Vec<Row>, Trouble> {
        let mut rows = vec![[0; DEPTH]; source.rows];
        for (line, part) in source.pieces() {
            let at = source.place(line, part);
            self.shared.place("a descriptor's operand", at as u64, 16, 1, 0)?;
            self.shared.read_async(at, 16, warp)?;
            for i in 0..8 {
                let bytes = &self.shared.bytes[at + 2 * i..][..2];
                let value = u16::from_le_bytes([bytes[0], bytes[1]]);
                let (row, k) = match source.transposed {
                    false => (line, 8 * part + i),
                    true => (8 * part + i, line),
                };
                rows[row - source.first][k] = value;
            }
        }
        Ok(rows)
    }

    /// `wgmma.mma_async`, for this warp's 16 of the 64 rows.
    pub(super) fn wgmma(&mut self, warp: &Warp, wgmma: &Wgmma) -> Result<(), Trouble> {
        let index = warp.index as usize;
        if index / WARPS * WARPS + WARPS > self.wgmmas.len() {
            return trouble(LAUNCH_FAILED, warp.mask, "is executed by less than a warpgroup");
        }
        self.check_registers(index, wgmma)?;
        let uniform = |reg: Reg| {
            let all = warp.double(reg);
            match all.iter().all(|value| *value == all[0]) {
                true => Ok(all[0]),
                false => trouble(LAUNCH_FAILED, warp.mask, "lanes have different descriptors"),
            }
        };
        let [turn_a, turn_b] = wgmma.transposed;
        let left = match wgmma.a {
            Left::Descriptor(reg) => {
                Some(Source::of(uniform(reg)?, turn_a, 16 * (index % WARPS), 16)?)
            }
            Left::Registers(_) => None,
        };
        let right = Source::of(uniform(wgmma.b)?, turn_b, 0, wgmma.columns)?;
        let adds = match warp.predicate(wgmma.adds) {
            0 => false,
            u32::MAX => true,
            _ => return trouble(LAUNCH_FAILED, warp.mask, "lanes differ in scale-d"),
        };
        let a = match (&left, wgmma.a) {
            (Some(source), _) => self.factor(warp.index, source)?,
            (None, Left::Registers(list)) => self.fragments(warp, list),
            (None, Left::Descriptor(_)) => vec![],
        };
        let b = self.factor(warp.index, &right)?;
        let state = &mut self.wgmmas[index];
        wgmma.d.iter().for_each(|reg| state.touched[*reg as usize] = wgmma.columns as u16);
        let (step, group) = (warp.pc, state.committed);
        state.flying.push(Flying { step, group, left, right, adds, a, b, is_read: false });
        Ok(())
    }

    /// Rejects a wgmma whose registers need a fence or a wait first.
    fn check_registers(&self, index: usize, wgmma: &Wgmma) -> Result<(), Trouble> {
        let touched = &self.wgmmas[index].touched;
        let is_ready = |reg: &Reg| [0, wgmma.columns as u16].contains(&touched[*reg as usize]);
        let left = match wgmma.a {
            Left::Registers(list) => list,
            Left::Descriptor(_) => [wgmma.d[0]; 4],
        };
        if !wgmma.d.iter().chain(&left).all(is_ready) {
            let text = "uses registers that were accessed since the last wgmma.fence";
            return trouble(LAUNCH_FAILED, u32::MAX, text);
        }
        // Consecutive wgmmas may use the same accumulators; any other reuse of registers needs a
        // wait.
        let is_factor = matches!(wgmma.a, Left::Registers(_));
        for other in self.flying(index) {
            let holds = |list: &[Reg], reg: &Reg| list.contains(reg);
            let is_read = is_factor && left.iter().any(|reg| holds(&other.d, reg));
            let is_written = match &other.a {
                Left::Registers(list) => wgmma.d.iter().any(|reg| holds(list, reg)),
                Left::Descriptor(_) => false,
            };
            if is_read || is_written {
                let text = "uses registers of another wgmma in flight";
                return trouble(LAUNCH_FAILED, u32::MAX, text);
            }
        }
        Ok(())
    }

    fn flying(&self, index: usize) -> impl Iterator<Item = &Wgmma> {
        let flying = self.wgmmas.get(index).map_or(&[][..], |state| &state.flying[..]);
        flying.iter().filter_map(|flying| self.wgmma_of(flying.step))
    }

    /// The rows of an operand A in registers, which have the layout of `mma.m16n8k16`.
    fn fragments(&self, warp: &Warp, list: [Reg; 4]) -> Vec<Row> {
        let mut rows = vec![[0; DEPTH]; 16];
        for (r, reg) in list.iter().enumerate() {
            for (lane, word) in warp.word(*reg).iter().enumerate() {
                let (row, k) = (lane / 4 + 8 * (r & 1), 2 * (lane % 4) + 8 * (r >> 1));
                (rows[row][k], rows[row][k + 1]) = (*word as u16, (*word >> 16) as u16);
            }
        }
        rows
    }

    /// Records that an ordinary instruction accesses these wgmma registers.
    pub(super) fn touch_registers(&mut self, warp: &Warp, list: &[Reg]) -> Result<(), Trouble> {
        let index = warp.index as usize;
        let is_held = |wgmma: &Wgmma| {
            let left = match &wgmma.a {
                Left::Registers(left) => &left[..],
                Left::Descriptor(_) => &[],
            };
            list.iter().any(|reg| wgmma.d.contains(reg) || left.contains(reg))
        };
        if self.flying(index).any(is_held) {
            let text = "accesses registers of a wgmma in flight";
            return trouble(LAUNCH_FAILED, warp.mask, text);
        }
        let state = &mut self.wgmmas[index];
        list.iter().for_each(|reg| state.touched[*reg as usize] = ORDINARY);
        Ok(())
    }

    /// `wgmma.fence`.
    pub(super) fn fence_registers(&mut self, warp: &Warp) {
        self.wgmmas[warp.index as usize].touched.fill(0);
    }

    pub(super) fn commit_wgmmas(&mut self, warp: &Warp) {
        self.wgmmas[warp.index as usize].committed += 1;
    }

    /// `wgmma.wait_group`: once all warps of the warpgroup have committed the groups, checks their
    /// operands, and completes this warp's wgmmas.
    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    pub(super) fn wait_wgmmas(&mut self, warp: &mut Warp, but: u32) -> Result<Progress, Trouble> {
        let index = warp.index as usize;
        let end = self.wgmmas[index].committed.saturating_sub(but);
        let first = index / WARPS * WARPS;
        let all = first..(first + WARPS).min(self.wgmmas.len());
        if all.clone().any(|other| self.wgmmas[other].committed < end) {
            return Ok(Progress::Again);
        }
        for other in all {
            let mut flying = std::mem::take(&mut self.wgmmas[other].flying);
            for one in flying.iter_mut().filter(|one| one.group < end && !one.is_read) {
                one.is_read = true;
                let right = self.factor(other as u32, &one.right)?;
                let left = one.left.map(|left| self.factor(other as u32, &left)).transpose()?;
                if right != one.b || left.is_some_and(|left| left != one.a) {
                    let text = "waits for a wgmma whose operands were overwritten meanwhile";
                    return trouble(LAUNCH_FAILED, warp.mask, text);
                }
            }
            self.wgmmas[other].flying = flying;
        }
        let flying = std::mem::take(&mut self.wgmmas[index].flying);
        let (done, left) = flying.into_iter().partition(|one| one.group < end);
        self.wgmmas[index].flying = left;
        let done: Vec<Flying> = done;
        done.iter().for_each(|one| self.complete_wgmma(warp, one));
        Ok(Progress::On)
    }

    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    fn complete_wgmma(&self, warp: &mut Warp, flying: &Flying) {
        let Some(wgmma) = self.wgmma_of(flying.step) else { return };
        let [negate_a, negate_b] = wgmma.negated;
        let mut a = [[0f32; DEPTH]; 16];
        for (row, from) in a.iter_mut().zip(&flying.a) {
            *row = wide(from, wgmma.is_brain, negate_a);
        }
        for (block, columns) in flying.b.chunks_exact(8).enumerate() {
            let mut b = [[0f32; 8]; DEPTH];
            for (column, from) in columns.iter().enumerate() {
                for (k, value) in wide(from, wgmma.is_brain, negate_b).into_iter().enumerate() {
                    b[k][column] = value;
                }
            }
            let mut of = [0; 14];
            let count = if wgmma.has_half_sums { 2 } else { 4 };
            let list = &wgmma.d[count * block..][..count];
            of[..count].copy_from_slice(list);
            of[10..10 + count].copy_from_slice(list);
            let mut d = match (flying.adds, wgmma.has_half_sums) {
                (false, _) => [[0f32; 8]; 16],
                (true, false) => tensor::gather(warp, &of),
                (true, true) => tensor::gather_halves(warp, &of),
            };
            tensor::multiply(&a, &b, &mut d, self.options.sums);
            match wgmma.has_half_sums {
                false => tensor::scatter(warp, &of, &d),
                true => tensor::scatter_halves(warp, &of, &d),
            }
        }
    }
}
