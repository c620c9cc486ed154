//! Divides the work of a GEMM into tasks for the threads of the pool.

use rayon::prelude::*;

/// Number of threads that a GEMM divides its work among.
pub(crate) fn threads() -> usize {
    rayon::current_num_threads()
}

/// Number of tasks that keeps the threads busy to the end, even if some take longer than others.
pub(crate) fn wanted() -> usize {
    4 * threads()
}

/// Number of pieces, at most `most`, into which each of `tasks` equal tasks is divided to keep the
/// threads busy to the end.
pub(crate) fn pieces(tasks: usize, most: usize) -> usize {
    let tasks = tasks.max(1);
    let even = tasks.is_multiple_of(threads());
    if even { 1 } else { wanted().div_ceil(tasks).min(most).max(1) }
}

/// Runs each task.
pub(crate) fn each<T: Send>(tasks: Vec<T>, run: impl Fn(T) + Sync + Send) {
    tasks.into_par_iter().for_each(run);
}

/// Runs each task with memory that later tasks reuse.
pub(crate) fn each_with<T: Send, M>(
    tasks: Vec<T>,
    memory: impl Fn() -> M + Sync + Send,
    run: impl Fn(&mut M, T) + Sync + Send,
) {
    tasks.into_par_iter().for_each_init(memory, run);
}
