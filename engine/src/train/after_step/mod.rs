//! Parts that observe a run after its steps, without changing it.
//!
//! A part is a file with a function in [`PARTS`] and its keys, a table of the config. Divergence,
//! stop, checkpoint, evaluation and final result are not parts: each needs the previous one, and
//! [`super::session`] calls them in order.

pub(crate) mod collect;

use std::fmt::Debug;

use super::journal::Journal;
use super::options::SessionOptions;
use super::trainer::Trainer;
use crate::config::Config;
use crate::error::EngineError;
use crate::metrics::StepRecord;

/// A part that observes a run after its steps.
pub(super) trait AfterStep: Debug + Send {
    /// The first step after `step` that it observes with no other step in flight, so that state can
    /// be read; `None` if it only reads records.
    fn next(&self, _step: u64) -> Option<u64> {
        None
    }

    /// Observes the run after the step of `record`, which the journal already has.
    ///
    /// # Errors
    /// Device errors; a file that cannot be written.
    fn after(&mut self, record: &StepRecord, run: &mut Run<'_>) -> Result<(), EngineError>;
}

/// A run, as visible to its parts.
pub(super) struct Run<'a> {
    pub(super) options: &'a SessionOptions,
    pub(super) trainer: &'a mut Trainer,
    pub(super) journal: &'a mut Journal,
}

/// Creates a part; `None` if the config does not request it.
type MakePart = fn(&Config) -> Option<Box<dyn AfterStep>>;

/// The parts, in calling order.
const PARTS: &[MakePart] = &[collect::part];

/// The parts that a config requests.
pub(super) fn parts(config: &Config) -> Vec<Box<dyn AfterStep>> {
    PARTS.iter().filter_map(|make| make(config)).collect()
}

/// The first multiple of `every` after `step`; `None` for 0, which is never.
pub(super) fn next_multiple(every: u64, step: u64) -> Option<u64> {
    (every > 0).then(|| (step / every).saturating_add(1).saturating_mul(every))
}

/// True if something with period `every` is due after `step`; 0 is never.
pub(super) fn due(every: u64, step: u64) -> bool {
    every > 0 && step.is_multiple_of(every)
}
