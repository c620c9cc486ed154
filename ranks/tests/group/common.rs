//! Runs whose ranks are threads, each with a control connection of its own.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use ranks::{Group, JoinOptions, Launch, Launcher, RanksError};

/// Lines of the log.
pub(crate) type Lines = Arc<Mutex<Vec<String>>>;

pub(crate) fn launch(rank: usize, ranks: usize) -> Launch {
    Launch { rank, ranks, local_rank: rank, local_ranks: ranks, launcher: Launcher::Torchrun }
}

/// Options of a run whose ranks find one another by the files of `folder`.
pub(crate) fn options(folder: &tempfile::TempDir, job: &str) -> JoinOptions {
    let (folder, job) = (folder.path().display().to_string(), job.to_owned());
    let lookup = move |name: &str| match name {
        "XDG_RUNTIME_DIR" => Some(folder.clone()),
        "ONEGRAPH_JOB" => Some(job.clone()),
        _ => None,
    };
    JoinOptions {
        join_timeout: Duration::from_secs(20),
        timeout: Duration::from_secs(2),
        lookup: Arc::new(lookup),
        ..JoinOptions::default()
    }
}

/// The options with a log.
pub(crate) fn logged(options: JoinOptions) -> (JoinOptions, Lines) {
    let lines = Lines::default();
    let own = lines.clone();
    let say = Arc::new(move |line: &str| own.lock().expect("no panic").push(line.to_owned()));
    (JoinOptions { say, ..options }, lines)
}

/// Joins all ranks of a run, and lets each do something in its thread.
pub(crate) fn run<T: Send>(
    ranks: usize,
    options: &JoinOptions,
    body: impl Fn(Group) -> T + Sync,
) -> Vec<T> {
    let results = join_some(0..ranks, ranks, options, &body);
    results.into_iter().map(|result| result.expect("all ranks join")).collect()
}

/// The same for some of the ranks.
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
