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
    /// All steps are done.
    Done,
    /// The targets were reached before the last step.
    TargetReached,
    /// The last `train.patience` evaluations did not improve the score.
    NoImprovement,
    /// A signal interrupted the run; its checkpoint is complete.
    Interrupted,
}

impl Outcome {
    pub(super) fn reason(self) -> &'static str {
        match self {
            Outcome::Done => "all steps are done",
            Outcome::TargetReached => "the target is reached",
            Outcome::NoImprovement => "the score no longer improves",
            Outcome::Interrupted => "a signal was received",
        }
    }
}

/// The inputs of a session in addition to its config.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// The run directory.
    pub run: RunDir,
    /// True to resume from the run's last checkpoint.
    pub resume: bool,
    /// True to resume even if changes of config or data affect training.
    pub accept_changes: bool,
    /// Set by a signal handler to request a checkpoint and the end of the run.
    pub interrupted: Arc<AtomicBool>,
    /// Terminal output.
    pub progress: Progress,
    /// The backend that runs the programs.
    pub backend: Backend,
    /// The ranks of the run.
    pub team: Team,
    /// The observer that times the run; set on all ranks or on none. If it is set, devices warm up
    /// before the data is read.
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
