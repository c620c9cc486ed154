//! The tasks of a product: on the threads of the pool, or rehearsed for more threads than there
//! are.
//!
//! In a rehearsal a product divides its work for so many threads, and one thread does all of it.
//! Each task's time is taken, and the thread that is free first gets the next: the time that the
//! last one ends is what the threads would need if each were as fast as the one.

use std::cell::Cell;
use std::ops::AddAssign;
use std::time::Instant;

use rayon::prelude::*;

thread_local! {
    static REHEARSAL: Cell<Option<(usize, Rehearsed)>> = const { Cell::new(None) };
}

/// Seconds of tasks that were rehearsed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Rehearsed {
    /// On the one thread that ran them.
    pub alone: f64,
    /// On the threads that they were divided for.
    pub divided: f64,
}

impl AddAssign for Rehearsed {
    fn add_assign(&mut self, other: Self) {
        self.alone += other.alone;
        self.divided += other.divided;
    }
}

/// Runs `f`; products that this thread starts meanwhile are rehearsed for so many threads.
pub fn rehearse(threads: usize, f: impl FnOnce()) -> Rehearsed {
    let before = REHEARSAL.replace(Some((threads.max(1), Rehearsed::default())));
    f();
    REHEARSAL.replace(before).map(|(_, rehearsed)| rehearsed).unwrap_or_default()
}

/// Threads that a product divides its work for.
pub(crate) fn threads() -> usize {
    REHEARSAL.get().map_or_else(rayon::current_num_threads, |(threads, _)| threads)
}

/// Tasks that keep the threads busy to the end, though some take longer than others.
pub(crate) fn wanted() -> usize {
    4 * threads()
}

/// Pieces of each of `tasks` equal tasks that keep the threads busy to the end, up to `most`.
pub(crate) fn pieces(tasks: usize, most: usize) -> usize {
    let tasks = tasks.max(1);
    let even = tasks.is_multiple_of(threads());
    if even { 1 } else { wanted().div_ceil(tasks).min(most).max(1) }
}

/// Runs each task.
pub(crate) fn each<T: Send>(tasks: Vec<T>, run: impl Fn(T) + Sync + Send) {
    each_with(tasks, || (), |(), task| run(task));
}

/// Runs each task with memory that is used again for later ones.
pub(crate) fn each_with<T: Send, M>(
    tasks: Vec<T>,
    memory: impl Fn() -> M + Sync + Send,
    run: impl Fn(&mut M, T) + Sync + Send,
) {
    let Some((threads, mut all)) = REHEARSAL.get() else {
        return tasks.into_par_iter().for_each_init(memory, run);
    };
    let mut memory = memory();
    let timed = tasks.into_iter().map(|task| {
        let start = Instant::now();
        run(&mut memory, task);
        start.elapsed().as_secs_f64()
    });
    let seconds: Vec<f64> = timed.collect();
    all += Rehearsed { alone: seconds.iter().sum(), divided: makespan(threads, &seconds) };
    REHEARSAL.set(Some((threads, all)));
}

/// When the last of some tasks ends, each of which goes to the thread that is free first.
fn makespan(threads: usize, seconds: &[f64]) -> f64 {
    let mut free = vec![0.0_f64; threads];
    for task in seconds {
        let first = free.iter_mut().min_by(|a, b| a.total_cmp(b));
        first.into_iter().for_each(|first| *first += task);
    }
    free.into_iter().fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::{each, makespan, rehearse, threads};

    #[test]
    fn the_thread_that_is_free_first_takes_the_next_task() {
        assert_eq!(makespan(1, &[3.0, 1.0, 2.0]), 6.0);
        assert_eq!(makespan(2, &[3.0, 1.0, 2.0, 2.0]), 5.0);
        assert_eq!((makespan(8, &[3.0, 1.0]), makespan(2, &[])), (3.0, 0.0));
    }

    #[test]
    fn a_rehearsal_runs_every_task_once() {
        let (before, ran) = (threads(), AtomicUsize::new(0));
        let rehearsed = rehearse(64, || {
            assert_eq!(threads(), 64);
            each((0..100).collect(), |_| {
                ran.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!((ran.into_inner(), threads()), (100, before));
        assert!(rehearsed.divided <= rehearsed.alone, "{rehearsed:?}");
    }
}
