//! Test runs whose ranks are threads with separate connections.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ranks::{Group, JoinOptions, Launch, Launcher, RanksError};

/// The lines that were logged.
pub(crate) type Lines = Arc<Mutex<Vec<String>>>;

pub(crate) fn launch(rank: usize, ranks: usize) -> Launch {
    Launch { rank, ranks, local_rank: rank, local_ranks: ranks, launcher: Launcher::Torchrun }
}

/// Options of a new run with a unique name, by which its ranks find each other.
pub(crate) fn options() -> JoinOptions {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let job = format!("{} {}", std::process::id(), RUNS.fetch_add(1, Ordering::SeqCst));
    with_variables(&[("ONEGRAPH_JOB", &job)])
}

/// Options of a run with these environment variables.
pub(crate) fn with_variables(variables: &[(&str, &str)]) -> JoinOptions {
    let variables: Vec<(String, String)> =
        variables.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let lookup = move |name: &str| {
        variables.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone())
    };
    JoinOptions {
        join_timeout: Duration::from_secs(20),
        timeout: Duration::from_secs(2),
        lookup: Arc::new(lookup),
        ..JoinOptions::default()
    }
}

/// Adds a log to the options.
pub(crate) fn logged(options: JoinOptions) -> (JoinOptions, Lines) {
    let lines = Lines::default();
    let own = lines.clone();
    let say = Arc::new(move |line: &str| own.lock().expect("no panic").push(line.to_owned()));
    (JoinOptions { say, ..options }, lines)
}

/// Waits until a line of the log contains `said`.
pub(crate) fn wait_for(lines: &Lines, said: &str) {
    let deadline = Instant::now() + Duration::from_secs(15);
    loop {
        let lines = lines.lock().expect("no panic").clone();
        if lines.iter().any(|line| line.contains(said)) {
            return assert!(lines.iter().all(|line| !line.contains('\n')), "{lines:?}");
        }
        assert!(Instant::now() < deadline, "no line says `{said}`: {lines:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Joins all ranks of a run, and runs a function on each rank's thread.
pub(crate) fn run<T: Send>(
    ranks: usize,
    options: &JoinOptions,
    body: impl Fn(Group) -> T + Sync,
) -> Vec<T> {
    let results = join_some(0..ranks, ranks, options, &body);
    results.into_iter().map(|result| result.expect("all ranks join")).collect()
}

/// Like [`run`], but only some of the ranks join.
pub(crate) fn join_some<T: Send>(
    which: impl IntoIterator<Item = usize>,
    ranks: usize,
    options: &JoinOptions,
    body: &(impl Fn(Group) -> T + Sync),
) -> Vec<Result<T, RanksError>> {
    thread::scope(|scope| {
        let spawn = |rank| {
            let options = options.clone();
            scope.spawn(move || Group::join(&launch(rank, ranks), options).map(body))
        };
        let threads: Vec<_> = which.into_iter().map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}
