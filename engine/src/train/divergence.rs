//! Stops a run whose losses are non-finite.

use configs::Config;

use crate::error::EngineError;
use crate::metrics::StepRecord;

/// Consecutive non-finite steps before a run with a dynamic loss scale gives up.
const MAX_BAD_STEPS: u64 = 10;

/// Watches the losses. A dynamic loss scale skips a non-finite step; if the next steps are no
/// better, the weights are lost and it would skip forever.
#[derive(Debug)]
pub(super) struct Divergence {
    dynamic_loss_scale: bool,
    bad_steps: u64,
}

impl Divergence {
    pub(super) fn new(config: &Config) -> Self {
        Self { dynamic_loss_scale: config.solver.dynamic_loss_scale, bad_steps: 0 }
    }

    /// Checks a step.
    ///
    /// # Errors
    /// [`EngineError::Diverged`] when the run is lost.
    pub(super) fn check(&mut self, record: &StepRecord) -> Result<(), EngineError> {
        let Some((name, value)) = record.losses.iter().find(|(_, value)| !value.is_finite()) else {
            self.bad_steps = 0;
            return Ok(());
        };
        self.bad_steps += 1;
        if self.dynamic_loss_scale && self.bad_steps < MAX_BAD_STEPS {
            return Ok(());
        }
        Err(EngineError::Diverged {
            step: record.step,
            name: name.to_string(),
            value: *value,
            advice: "lower solver.learning_rate, lengthen solver.warmup_steps, or set \
                     solver.clip_norm"
                .into(),
        })
    }
}
