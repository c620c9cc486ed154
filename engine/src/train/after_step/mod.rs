//! Observers that run after a step, without affecting training.
//!
//! Each observer is a file with a constructor in [`PARTS`] and a table of config keys. Divergence
//! checks, stopping, checkpoints, evaluations and the final result are not in this list, as each
//! depends on the previous one; [`super::session`] calls them in order.

pub(crate) mod collect;

use std::fmt::Debug;

use super::journal::Journal;
use super::options::SessionOptions;
use super::trainer::Trainer;
use crate::config::Config;
use crate::error::EngineError;
use crate::metrics::StepRecord;

/// Observes a run after its steps.
pub(super) trait AfterStep: Debug + Send {
    /// The first step after `step` at which no other step may be in flight, because the observer
    /// reads state; `None` if it only reads records.
    fn next(&self, _step: u64) -> Option<u64> {
        None
    }

    /// Called after the step of `record`, which is already in the journal.
    ///
    /// # Errors
    /// Device errors; a file that cannot be written.
    fn after(&mut self, record: &StepRecord, run: &mut Run<'_>) -> Result<(), EngineError>;
}

/// The parts of a run that an observer can access.
pub(super) struct Run<'a> {
    pub(super) options: &'a SessionOptions,
    pub(super) trainer: &'a mut Trainer,
    pub(super) journal: &'a mut Journal,
}

/// Creates an observer; `None` if the config does not request it.
type MakePart = fn(&Config) -> Option<Box<dyn AfterStep>>;

/// Constructors of all observers, in calling order.
const PARTS: &[MakePart] = &[collect::part];

/// The observers that a config requests.
pub(super) fn parts(config: &Config) -> Vec<Box<dyn AfterStep>> {
    PARTS.iter().filter_map(|make| make(config)).collect()
}

/// The first multiple of `every` after `step`; `None` if `every` is 0 (never).
pub(super) fn next_multiple(every: u64, step: u64) -> Option<u64> {
    (every > 0).then(|| (step / every).saturating_add(1).saturating_mul(every))
}

/// True if an action with period `every` is due after `step`; a period of 0 means never.
pub(super) fn due(every: u64, step: u64) -> bool {
    every > 0 && step.is_multiple_of(every)
}
