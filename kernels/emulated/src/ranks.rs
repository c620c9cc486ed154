//! Several ranks in one process: where their sums meet.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use device::{AllReduce, DType, DeviceError, Ranks};
use half::f16;

/// A rank that waits alone this long has lost the others.
const PATIENCE: Duration = Duration::from_secs(60);

/// One rank's end of a group.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) ranks: Ranks,
    meeting: Arc<Meeting>,
}

#[derive(Debug, Default)]
struct Meeting {
    round: Mutex<Round>,
    changed: Condvar,
}

/// A sum in progress.
#[derive(Debug, Default)]
struct Round {
    /// Sums that are done.
    number: u64,
    /// Each rank's contribution; `None` until it arrives.
    brought: Vec<Option<Vec<u8>>>,
    /// The sum, while ranks read it.
    sum: Option<Result<Vec<u8>, String>>,
    taken: usize,
}

impl Member {
    /// A group of this many ranks.
    pub(crate) fn group(count: usize) -> impl Iterator<Item = Self> {
        let brought = vec![None; count];
        let round = Mutex::new(Round { brought, ..Round::default() });
        let meeting = Arc::new(Meeting { round, changed: Condvar::new() });
        (0..count).map(move |rank| {
            let ranks = Ranks { rank, count };
            Self { ranks, meeting: meeting.clone() }
        })
    }

    /// Contributes this rank's values and waits for the sum.
    pub(crate) fn sum(&self, what: &AllReduce, mine: Vec<u8>) -> Result<Vec<u8>, DeviceError> {
        let Ranks { rank, count } = self.ranks;
        let fault =
            |reason| DeviceError::Driver { call: format!("all_reduce, rank {rank}"), reason };
        let mut round = self.meeting.round.lock().unwrap_or_else(PoisonError::into_inner);
        // The others may still be reading the last sum.
        round = self.wait(round, |round| round.sum.is_none()).map_err(fault)?;
        let number = round.number;
        round.brought[rank] = Some(mine);
        if round.brought.iter().all(Option::is_some) {
            let brought: Vec<_> = round.brought.iter_mut().filter_map(Option::take).collect();
            round.sum = Some(add(&brought, what.dtype));
            self.meeting.changed.notify_all();
        }
        let there = |round: &Round| round.sum.is_some() && round.number == number;
        round = self.wait(round, there).map_err(fault)?;
        let sum = round.sum.clone().unwrap_or_else(|| Err("no sum".into()));
        round.taken += 1;
        if round.taken == count {
            (round.sum, round.taken, round.number) = (None, 0, number + 1);
            self.meeting.changed.notify_all();
        }
        sum.map_err(fault)
    }

    fn wait<'a>(
        &self,
        round: std::sync::MutexGuard<'a, Round>,
        until: impl Fn(&Round) -> bool,
    ) -> Result<std::sync::MutexGuard<'a, Round>, String> {
        let waited = self.meeting.changed.wait_timeout_while(round, PATIENCE, |r| !until(r));
        let (round, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if !waited.timed_out() {
            return Ok(round);
        }
        let missing = round.brought.iter().position(Option::is_none).unwrap_or(0);
        Err(format!("rank {missing} did not come within {} s", PATIENCE.as_secs()))
    }
}

/// The sum in rank order.
fn add(brought: &[Vec<u8>], dtype: DType) -> Result<Vec<u8>, String> {
    let lengths: Vec<usize> = brought.iter().map(Vec::len).collect();
    if lengths.iter().any(|len| *len != lengths[0]) {
        return Err(format!("the ranks brought {lengths:?} bytes"));
    }
    let total = |i: usize, value: &dyn Fn(&[u8]) -> f32, size: usize| {
        let values = brought.iter().map(|bytes| value(&bytes[i * size..(i + 1) * size]));
        values.reduce(|a, b| a + b).unwrap_or(0.0)
    };
    let count = lengths[0] / dtype.size_bytes();
    match dtype {
        DType::F32 => {
            let value = |b: &[u8]| f32::from_ne_bytes([b[0], b[1], b[2], b[3]]);
            Ok((0..count).flat_map(|i| total(i, &value, 4).to_ne_bytes()).collect())
        }
        DType::F16 => {
            let value = |b: &[u8]| f16::from_ne_bytes([b[0], b[1]]).to_f32();
            let half = |i| f16::from_f32(total(i, &value, 2)).to_ne_bytes();
            Ok((0..count).flat_map(half).collect())
        }
        other => Err(format!("{other:?} is not added up")),
    }
}
