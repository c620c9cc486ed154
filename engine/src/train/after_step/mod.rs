//! Parts that look at a run after its steps, and change nothing of it.
//!
//! A part is a file with a function of [`PARTS`] and its keys, a table of the config. Divergence,
//! stop, checkpoint, evaluation and verdict are none: each needs the one before it, and
//! [`super::session`] has them in their order.

pub(crate) mod collect;

use std::fmt::Debug;

use super::journal::Journal;
use super::options::SessionOptions;
use super::trainer::Trainer;
use crate::config::Config;
use crate::error::EngineError;
use crate::metrics::StepRecord;

/// A part that looks at a run after its steps.
pub(super) trait AfterStep: Debug + Send {
    /// The first step after `step` that it looks at with no other in flight, so that its state can
    /// be read; `None` if it reads records alone.
    fn next(&self, _step: u64) -> Option<u64> {
        None
    }

    /// Looks at the run after the step of `record`, which the journal has.
    ///
    /// # Errors
    /// Device errors; a file that cannot be written.
    fn after(&mut self, record: &StepRecord, run: &mut Run<'_>) -> Result<(), EngineError>;
}

/// A run, as its parts see it.
pub(super) struct Run<'a> {
    pub(super) options: &'a SessionOptions,
    pub(super) trainer: &'a mut Trainer,
    pub(super) journal: &'a mut Journal,
}

/// Makes a part; `None` if the config does not ask for it.
type MakePart = fn(&Config) -> Option<Box<dyn AfterStep>>;

/// The parts, in the order in which they look.
const PARTS: &[MakePart] = &[collect::part];

/// The parts that a config asks for.
pub(super) fn parts(config: &Config) -> Vec<Box<dyn AfterStep>> {
    PARTS.iter().filter_map(|make| make(config)).collect()
}

/// The first multiple of `every` after `step`; `None` for 0, which is never.
pub(super) fn next_multiple(every: u64, step: u64) -> Option<u64> {
    (every > 0).then(|| (step / every).saturating_add(1).saturating_mul(every))
}

/// True if something that happens every so many steps happens after `step`; 0 is never.
pub(super) fn due(every: u64, step: u64) -> bool {
    every > 0 && step.is_multiple_of(every)
}
