//! Converts a config's learning-rate schedule to the op's representation.

use crate::config::{Config, Schedule};
use kernels::ops::control_step::LrSchedule;

/// The schedule that `[solver]` describes.
pub(super) fn schedule(config: &Config) -> LrSchedule {
    let solver = &config.solver;
    let (base, warmup_steps) = (config.rate_for_batch(solver.learning_rate), solver.warmup_steps);
    let warmup_factor = solver.warmup_factor;
    match solver.schedule {
        Schedule::Multistep => LrSchedule::Multistep {
            base,
            warmup_steps,
            warmup_factor,
            milestones: solver.milestones.clone(),
            gamma: solver.gamma,
        },
        Schedule::Cosine => LrSchedule::Cosine {
            base,
            warmup_steps,
            warmup_factor,
            total_steps: config.train.steps,
            min: config.rate_for_batch(solver.min_learning_rate),
        },
    }
}
