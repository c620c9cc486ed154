//! An exchange between the threads of one process: for tests, and for ranks that are threads.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use device::{Exchange, Ranks};

/// How long a rank waits for the others.
const LIMIT: Duration = Duration::from_secs(60);

/// One exchange for each of `n` threads.
pub fn in_process(n: usize) -> Vec<Arc<dyn Exchange>> {
    in_process_within(n, LIMIT).into_iter().map(|rank| rank as Arc<dyn Exchange>).collect()
}

fn in_process_within(n: usize, limit: Duration) -> Vec<Arc<InProcess>> {
    let mail = (0..n * n).map(|_| None).collect();
    let shared = Arc::new(Shared {
        limit,
        state: Mutex::new(State { mail, fault: None }),
        changed: Condvar::new(),
    });
    let rank = |rank| InProcess { ranks: Ranks { rank, count: n }, shared: shared.clone() };
    (0..n).map(|r| Arc::new(rank(r))).collect()
}

struct InProcess {
    ranks: Ranks,
    shared: Arc<Shared>,
}

struct Shared {
    limit: Duration,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The values that rank `a` sent to rank `b`, at `a * n + b`, until `b` takes them.
    mail: Vec<Option<Vec<f32>>>,
    fault: Option<String>,
}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InProcess(rank {} of {})", self.ranks.rank, self.ranks.count)
    }
}

impl InProcess {
    /// Does `step` when the box between two ranks is full or empty as wanted; false after a fault.
    fn when(
        &self,
        [from, to]: [usize; 2],
        full: bool,
        step: impl FnOnce(&mut Option<Vec<f32>>),
    ) -> bool {
        let deadline = Instant::now() + self.shared.limit;
        let at = from * self.ranks.count + to;
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.fault.is_none() && state.mail[at].is_some() != full {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let seconds = self.shared.limit.as_secs_f64();
                let other = if full { from } else { to };
                let rank = self.ranks.rank;
                state.fault =
                    Some(format!("rank {rank} waited {seconds} s for values of rank {other}"));
                self.shared.changed.notify_all();
                break;
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.fault.is_some() {
            return false;
        }
        step(&mut state.mail[at]);
        self.shared.changed.notify_all();
        true
    }
}

impl Exchange for InProcess {
    fn ranks(&self) -> Ranks {
        self.ranks
    }

    fn exchange(&self, send: &[&[f32]], receive: &mut [&mut [f32]]) {
        let Ranks { rank, count } = self.ranks;
        assert_eq!((send.len(), receive.len()), (count, count), "one slice per rank each");
        let mut is_sound = true;
        for (to, values) in send.iter().enumerate() {
            is_sound &= self.when([rank, to], false, |mail| *mail = Some(values.to_vec()));
        }
        for (from, values) in receive.iter_mut().enumerate() {
            is_sound &= self.when([from, rank], true, |mail| {
                values.copy_from_slice(&mail.take().unwrap_or_default());
            });
        }
        if !is_sound {
            receive.iter_mut().for_each(|values| values.fill(f32::NAN));
        }
    }

    fn fault(&self) -> Option<String> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).fault.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use device::Exchange;

    use super::{in_process, in_process_within};

    #[test]
    fn each_rank_receives_what_the_others_sent_to_it() {
        let ranks = in_process(4);
        thread::scope(|scope| {
            for exchange in &ranks {
                scope.spawn(move || {
                    let me = exchange.ranks().rank as f32;
                    for round in 0..50 {
                        let sent: Vec<[f32; 2]> =
                            (0..4).map(|to| [me * 10.0 + to as f32, round as f32]).collect();
                        let send: Vec<&[f32]> = sent.iter().map(|values| &values[..]).collect();
                        let mut received = [[0.0f32; 2]; 4];
                        let mut receive: Vec<&mut [f32]> =
                            received.iter_mut().map(|values| &mut values[..]).collect();
                        exchange.exchange(&send, &mut receive);
                        for (from, values) in received.iter().enumerate() {
                            assert_eq!(*values, [from as f32 * 10.0 + me, round as f32]);
                        }
                    }
                    assert_eq!(exchange.fault(), None);
                });
            }
        });
    }

    #[test]
    fn a_rank_that_does_not_come_is_a_fault_and_nan() {
        let ranks = in_process_within(2, Duration::from_millis(50));
        let (mut own, mut other) = ([1.0], [1.0]);
        ranks[0].exchange(&[&[2.0], &[3.0]], &mut [&mut own, &mut other]);
        assert!(own[0].is_nan() && other[0].is_nan());
        let fault = ranks[1].fault().expect("both know");
        assert_eq!(fault, "rank 0 waited 0.05 s for values of rank 1");
    }
}
