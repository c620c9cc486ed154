//! Signals that end a command. A training run first completes its step and saves a checkpoint; all
//! other commands end at once. Incomplete files are removed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ranks::{Group, Launch};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::iterator::Signals;

use super::exit;
use crate::EngineError;
use crate::progress::Progress;

/// The handled signals, with their names.
const WATCHED: [(i32, &str); 4] =
    [(SIGINT, "SIGINT"), (SIGTERM, "SIGTERM"), (SIGHUP, "SIGHUP"), (SIGUSR1, "SIGUSR1")];

/// Maximum time to wait until the last message is printed.
const PATIENCE: Duration = Duration::from_millis(500);

/// The process's signal handling.
#[derive(Debug, Clone, Default)]
pub(super) struct Stop {
    /// Set by the first signal if `finishes_first` is set.
    requested: Arc<AtomicBool>,
    finishes_first: Arc<AtomicBool>,
    part: Arc<Mutex<Part>>,
}

/// This process as one rank of a run. A launcher sends a signal to all ranks, and only one prints a
/// message.
#[derive(Debug, Clone)]
struct Part {
    group: Group,
    progress: Progress,
}

impl Default for Part {
    fn default() -> Self {
        let is_first = Launch::from_env().map_or(true, |launch| launch.rank == 0);
        let progress = if is_first { Progress::loud() } else { Progress::quiet() };
        Self { group: Group::single(), progress }
    }
}

impl Stop {
    /// Handles signals from now on. Signals that were ignored when the process started (`nohup`)
    /// stay ignored.
    ///
    /// # Errors
    /// [`EngineError::Io`] if a handler cannot be installed.
    pub(super) fn watch() -> Result<Self, EngineError> {
        let stop = Self::default();
        let ignored = ignored_signals();
        let signals = WATCHED.map(|(signal, _)| signal);
        let signals = signals.into_iter().filter(|signal| ignored & 1 << (signal - 1) == 0);
        let fault = |source| EngineError::Io { path: "signal handler".into(), source };
        // Exceeding the file size limit (`ulimit -f`) is then a write error, and does not end the
        // process.
        signal_hook::flag::register(SIGXFSZ, Arc::default()).map_err(fault)?;
        let mut signals = Signals::new(signals).map_err(fault)?;
        let answering = stop.clone();
        let answer = move || signals.forever().for_each(|signal| answering.answer(signal));
        std::thread::Builder::new().name("signals".into()).spawn(answer).map_err(fault)?;
        Ok(stop)
    }

    /// Handles no signals: the calling program sets the flag `requested`.
    pub(super) fn of_a_program(requested: Arc<AtomicBool>) -> Self {
        Self { requested, ..Self::default() }
    }

    /// The flag that the first signal sets after [`Self::finish_first`].
    pub(super) fn flag(&self) -> Arc<AtomicBool> {
        self.requested.clone()
    }

    /// From now on the first signal only sets the flag: the caller must complete the current step,
    /// save and end. A second signal, unless it is SIGUSR1, ends the process at once.
    pub(super) fn finish_first(&self) {
        self.finishes_first.store(true, Ordering::SeqCst);
    }

    /// From now on a signal ends the process at once, as it does initially.
    pub(super) fn end_at_once(&self) {
        self.finishes_first.store(false, Ordering::SeqCst);
    }

    /// From now on, a signal that ends this rank is reported to the other ranks, and messages go to
    /// `progress`.
    pub(super) fn join(&self, group: Group, progress: Progress) {
        *self.part.lock().unwrap_or_else(PoisonError::into_inner) = Part { group, progress };
    }

    fn answer(&self, signal: i32) {
        let Part { group, progress } =
            self.part.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // After the loss of a rank this process is about to end, without saving.
        if group.lost().is_some() {
            return;
        }
        let name = WATCHED.iter().find(|(s, _)| *s == signal).map_or("signal", |(_, name)| name);
        if self.finishes_first.load(Ordering::SeqCst) {
            let is_first = !self.requested.swap(true, Ordering::SeqCst);
            if is_first {
                let text = "stopping after the current step; a second signal stops immediately";
                let _ = saying(progress, format!("{name}: {text}"));
                return;
            }
            if signal == SIGUSR1 {
                return;
            }
        }
        let _ = saying(progress, format!("{name}: ending")).recv_timeout(PATIENCE);
        dali::unfinished::remove_all_and(|| {
            group.leave(Some((exit::INTERRUPTED, name)));
            signal_hook::low_level::exit(i32::from(exit::INTERRUPTED));
        });
    }
}

/// Prints a line on a separate thread, since standard error may be a pipe without an active reader.
/// The receiver gets a value once the line is printed.
fn saying(progress: Progress, line: String) -> Receiver<()> {
    let (done, said) = channel();
    let say = move || {
        progress.say(&line);
        // The receiver may have timed out.
        let _ = done.send(());
    };
    // If the thread cannot be started, no message is printed.
    let _ = std::thread::Builder::new().name("say".into()).spawn(say);
    said
}

/// Mask of ignored signals: bit `n - 1` is set if the process ignores signal `n`. 0 if `/proc` is
/// not available.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
