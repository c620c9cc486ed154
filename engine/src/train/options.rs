//! The options of a session, and its outcome.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use super::observer::{Event, Observer};
use crate::error::EngineError;
use crate::progress::Progress;
use crate::run_dir::RunDir;
use crate::runtime::Backend;
use crate::team::Team;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All steps done.
    Done,
    /// The target was reached first.
    TargetReached,
    /// The last `train.patience` evaluations had no better score.
    NoImprovement,
    /// Interrupted by a signal; the checkpoint is complete.
    Interrupted,
}

impl Outcome {
    pub(super) fn reason(self) -> &'static str {
        match self {
            Outcome::Done => "all steps are done",
            Outcome::TargetReached => "the target is reached",
            Outcome::NoImprovement => "the score no longer improves",
            Outcome::Interrupted => "a signal asked for it",
        }
    }
}

/// The inputs of a session in addition to its config.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// The run directory.
    pub run: RunDir,
    /// Resume from the run's last checkpoint.
    pub resume: bool,
    /// Resume even if config or data affect training.
    pub accept_changes: bool,
    /// Set by a signal handler to request a checkpoint and the end of the run.
    pub interrupted: Arc<AtomicBool>,
    /// Reports to the terminal.
    pub progress: Progress,
    /// Runs the programs.
    pub backend: Backend,
    /// The ranks of the run.
    pub team: Team,
    /// The observer that times the run, on every rank or on none; the device then warms up before
    /// the data is read.
    pub observer: Option<Arc<Mutex<dyn Observer>>>,
}

impl SessionOptions {
    /// Reports an event to rank 0's observer, if there is one.
    ///
    /// # Errors
    /// The errors of the observer.
    pub(super) fn observe(&self, event: Event<'_>) -> Result<(), EngineError> {
        match &self.observer {
            Some(observer) if self.team.is_first() => {
                observer.lock().unwrap_or_else(PoisonError::into_inner).see(&event)
            }
            _ => Ok(()),
        }
    }
}
