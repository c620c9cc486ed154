//! Hopper's fences, named barriers, `elect` and `stmatrix`.
#![allow(unsafe_code)]

use super::block::{Block, all_here};
use super::flight::Progress;
use super::shared::Touch;
use super::warp::{Warp, lanes};
use super::{LAUNCH_FAILED, Trouble, trouble};
use crate::lanes::Doubles;
use crate::ptx::hopper::Hopper;
use crate::ptx::program::{Place, Reg, SHARED_WINDOW, Where};

impl Block<'_> {
    /// Executes one Hopper instruction.
    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    pub(super) fn hopper(
        &mut self,
        warp: &mut Warp,
        op: &Hopper,
        mask: u32,
    ) -> Result<Progress, Trouble> {
        match op {
            Hopper::Fence
            | Hopper::Wgmma(_)
            | Hopper::Commit
            | Hopper::Wait(_)
            | Hopper::Registers
            | Hopper::StoreMatrix(..) => all_here(warp, mask, u32::MAX)?,
            _ => {}
        }
        match op {
            Hopper::Fence => self.fence_registers(warp),
            Hopper::Wgmma(wgmma) => self.wgmma(warp, wgmma)?,
            Hopper::Commit => self.commit_wgmmas(warp),
            Hopper::Wait(but) => return self.wait_wgmmas(warp, *but),
            Hopper::Registers => {}
            Hopper::Barrier(number, threads, waits) => {
                return self.named_barrier(warp, *number, *threads, *waits, mask);
            }
            Hopper::FenceProxy => self.shared.fence(warp.index, mask),
            Hopper::FenceBarriers => self.fence_barriers(),
            Hopper::Elect(lane, predicate, named) => {
                let all = warp.word(*named)[mask.trailing_zeros() as usize];
                if all == 0 || all & warp.alive != mask {
                    let text = format!("is executed by lanes {mask:#x}, but its mask is {all:#x}");
                    return trouble(LAUNCH_FAILED, mask, text);
                }
                let leader = mask.trailing_zeros();
                warp.put_predicate(*predicate, 1 << leader, mask);
                if let Some(lane) = lane {
                    warp.put_word(*lane, &[leader; 32], mask);
                }
            }
            Hopper::Mbarrier(op, place) => return self.mbarrier(warp, op, place, mask),
            Hopper::Bulk(bulk) => self.bulk(warp, bulk, mask)?,
            Hopper::BulkCommit => self.commit_bulk(warp, mask),
            Hopper::BulkWait(but, of_reads) => self.wait_bulk(warp, *but, *of_reads, mask)?,
            Hopper::StoreMatrix(transposed, list, place) => {
                self.store_matrix(warp, *transposed, list, place)?;
            }
        }
        Ok(Progress::On)
    }

    /// Offsets in shared memory of each lane's operand.
    pub(super) fn near_addresses(&self, warp: &Warp, place: &Place) -> Doubles {
        let window = if place.is_generic { SHARED_WINDOW } else { 0 };
        self.addresses(warp, &place.address).map(|address| address.wrapping_sub(window))
    }

    /// `bar.sync` and `bar.arrive` for a part of the block: a warp counts as 32 threads.
    fn named_barrier(
        &mut self,
        warp: &mut Warp,
        number: Reg,
        threads: Option<Reg>,
        waits: bool,
        mask: u32,
    ) -> Result<Progress, Trouble> {
        all_here(warp, mask, warp.alive)?;
        let first = mask.trailing_zeros() as usize;
        let number = warp.word(number)[first] as usize;
        let block = self.launch.block.iter().product::<u32>().next_multiple_of(32);
        let threads = threads.map_or(block, |reg| warp.word(reg)[first]);
        let Some(barrier) = self.named.get_mut(number) else {
            return trouble(LAUNCH_FAILED, mask, format!("there is no barrier {number}"));
        };
        if let Some(round) = warp.round {
            if barrier.rounds == round {
                return Ok(Progress::Again);
            }
            warp.round = None;
            return Ok(Progress::On);
        }
        let is_new = barrier.arrived == 0;
        if threads == 0 || !threads.is_multiple_of(32) || threads > block {
            let text = format!("a barrier of {threads} threads in a block of {block}");
            return trouble(LAUNCH_FAILED, mask, text);
        }
        if !is_new && barrier.expected != threads {
            let text = format!("expects {threads} threads, others expect {}", barrier.expected);
            return trouble(LAUNCH_FAILED, mask, text);
        }
        barrier.expected = threads;
        barrier.arrived += 32;
        if barrier.arrived == threads {
            barrier.arrived = 0;
            barrier.rounds += 1;
            self.shared.barrier();
            return Ok(Progress::On);
        }
        if waits {
            warp.round = Some(barrier.rounds);
            return Ok(Progress::Again);
        }
        Ok(Progress::On)
    }

    /// `stmatrix`: each lane gives the address of a 16-byte row.
    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    fn store_matrix(
        &mut self,
        warp: &mut Warp,
        transposed: bool,
        list: &[Reg],
        place: &Place,
    ) -> Result<(), Trouble> {
        let addresses = self.near_addresses(warp, place);
        let rows = self.reach_rows(warp, &addresses, list.len(), Touch::Write)?;
        for (m, reg) in list.iter().enumerate() {
            let words = *warp.word(*reg);
            for (lane, word) in words.into_iter().enumerate() {
                for (i, half) in [word as u16, (word >> 16) as u16].into_iter().enumerate() {
                    let (g, t) = (lane / 4, 2 * (lane % 4) + i);
                    let (row, column) = if transposed { (t, g) } else { (g, t) };
                    let to = rows[8 * m + row].cast::<u16>().wrapping_add(column);
                    // SAFETY: `reach_rows` has checked 16 bytes for each row.
                    unsafe { to.write_unaligned(half) };
                }
            }
        }
        Ok(())
    }

    /// The row addresses of `ldmatrix` and `stmatrix`: eight lanes for each matrix.
    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    pub(super) fn reach_rows(
        &mut self,
        warp: &mut Warp,
        addresses: &Doubles,
        matrices: usize,
        touch: Touch,
    ) -> Result<[*mut u8; 32], Trouble> {
        let mask = u32::MAX >> (32 - 8 * matrices);
        for lane in lanes(mask) {
            self.shared.place("a matrix's row", addresses[lane], 16, 16, lane)?;
        }
        self.reach_near(warp, Where::Shared, addresses, mask, 16, touch)
    }
}
