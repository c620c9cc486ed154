//! Barriers in shared memory (`mbarrier`), whose phases complete by arrivals and bytes.

use super::block::Block;
use super::flight::{MAX_COUNT, Progress, State};
use super::shared::Touch;
use super::warp::{Warp, lanes};
use super::{LAUNCH_FAILED, Trouble, trouble};
use crate::ptx::hopper::{Mbarrier, Phase};
use crate::ptx::program::Place;

/// Pattern stored in the bytes of a barrier, to detect that they are overwritten.
const PATTERN: u64 = 0x6d62_6172_7269_6572;

impl Block<'_> {
    /// Executes an operation on barriers, lane by lane.
    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    pub(super) fn mbarrier(
        &mut self,
        warp: &mut Warp,
        op: &Mbarrier,
        place: &Place,
        mask: u32,
    ) -> Result<Progress, Trouble> {
        let addresses = self.near_addresses(warp, place);
        if let Mbarrier::Test(to, phase, may_wait) = op {
            let mut passed = 0;
            for lane in lanes(mask) {
                let state = self.known(warp, addresses[lane], lane)?;
                let has_passed = match phase {
                    Phase::Parity(reg) => state.phase & 1 != u64::from(warp.word(*reg)[lane] & 1),
                    Phase::State(reg) => state.phase != warp.double(*reg)[lane],
                };
                passed |= u32::from(has_passed) << lane;
            }
            if passed != mask && *may_wait && !self.random.once_in(4) {
                return Ok(Progress::Again);
            }
            warp.put_predicate(*to, passed, mask);
            return Ok(if passed == mask { Progress::On } else { Progress::Later });
        }
        if let Mbarrier::CopiesArrive(_) = op {
            self.land_all(warp, mask)?;
        }
        for lane in lanes(mask) {
            self.change(warp, op, addresses[lane], lane)?;
        }
        Ok(Progress::On)
    }

    fn change(
        &mut self,
        warp: &mut Warp,
        op: &Mbarrier,
        address: u64,
        lane: usize,
    ) -> Result<(), Trouble> {
        let fail = |text| trouble(LAUNCH_FAILED, 1 << lane, text);
        let at = address as usize;
        if let Mbarrier::Init(count) = op {
            let count = warp.word(*count)[lane];
            if count == 0 || count > MAX_COUNT {
                return fail("invalid arrival count of a barrier");
            }
            self.shared.place("a barrier", address, 8, 8, lane)?;
            self.shared.touch(at, 8, warp.index, lane, Touch::Write)?;
            self.shared.bytes[at..at + 8].copy_from_slice(&PATTERN.to_le_bytes());
            let (maker, made) = (warp.index, self.shared.barriers);
            let state =
                State { count, pending: count, bytes: 0, phase: 0, maker, made, is_fenced: false };
            self.mbarriers.insert(at, state);
            return Ok(());
        }
        let mut state = self.known(warp, address, lane)?;
        let done = match op {
            Mbarrier::Invalidate => {
                self.mbarriers.remove(&at);
                self.shared.bytes[at..at + 8].fill(0xff);
                return Ok(());
            }
            Mbarrier::ExpectBytes(bytes) => state.expect(warp.word(*bytes)[lane]).map(|()| false),
            Mbarrier::Arrive { state: to, count, bytes } => {
                if let Some(to) = to {
                    warp.put_double(*to, &[state.phase; 32], 1 << lane);
                }
                let count = warp.word(*count)[lane];
                let bytes = bytes.map_or(0, |bytes| warp.word(bytes)[lane]);
                state.expect(bytes).and_then(|()| state.arrive(count))
            }
            Mbarrier::CopiesArrive(true) => state.arrive(1),
            // Without `noinc`, the pending count is incremented and decremented: nothing changes.
            Mbarrier::CopiesArrive(false) | Mbarrier::Init(_) | Mbarrier::Test(..) => Ok(false),
        };
        self.mbarriers.insert(at, state);
        match done {
            Ok(true) => self.shared.barrier(),
            Ok(false) => {}
            Err(text) => return fail(text),
        }
        Ok(())
    }

    /// The barrier at an address, after checks that this warp may use it.
    fn known(&self, warp: &Warp, address: u64, lane: usize) -> Result<State, Trouble> {
        let at = self.shared.place("a barrier", address, 8, 8, lane)?;
        let Some(state) = self.mbarriers.get(&at).copied() else {
            let text = format!("there is no initialised barrier at {at:#x}");
            return trouble(LAUNCH_FAILED, 1 << lane, text);
        };
        if self.shared.bytes[at..at + 8] != PATTERN.to_le_bytes() {
            let text = format!("the barrier at {at:#x} was overwritten");
            return trouble(LAUNCH_FAILED, 1 << lane, text);
        }
        if state.maker != warp.index && state.made == self.shared.barriers {
            let text = "uses an mbarrier that another warp initialised since the last barrier";
            return trouble(LAUNCH_FAILED, 1 << lane, text);
        }
        Ok(state)
    }

    /// `fence.mbarrier_init`.
    pub(super) fn fence_barriers(&mut self) {
        self.mbarriers.values_mut().for_each(|state| state.is_fenced = true);
    }

    /// Offset of the barrier that a bulk copy will signal, after checks.
    pub(super) fn barrier_of_copy(
        &self,
        warp: &Warp,
        address: u64,
        lane: usize,
    ) -> Result<usize, Trouble> {
        let state = self.known(warp, address, lane)?;
        if !state.is_fenced && !self.shared.is_fenced(address as usize, 8) {
            let text = "the barrier's initialisation is not fenced before a bulk copy";
            return trouble(LAUNCH_FAILED, 1 << lane, text);
        }
        Ok(address as usize)
    }

    /// Counts bytes that have arrived at a barrier.
    pub(super) fn complete_bytes(&mut self, at: usize, bytes: usize) -> Result<(), Trouble> {
        let Some(state) = self.mbarriers.get_mut(&at) else {
            let text = format!("a bulk copy ends, but its barrier at {at:#x} no longer exists");
            return trouble(LAUNCH_FAILED, 1, text);
        };
        state.bytes -= bytes as i64;
        if state.settle() {
            self.shared.barrier();
        }
        Ok(())
    }
}
