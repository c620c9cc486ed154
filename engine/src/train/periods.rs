//! The steps after which a run is evaluated and saved.

use super::after_step::{due, next_multiple};
use crate::config::Train;

/// Numbers of steps between evaluations and between checkpoints: each from the config's setting in
/// steps, and from that in epochs; 0 means never.
#[derive(Debug)]
pub(super) struct Periods {
    evaluation: [u64; 2],
    checkpoint: [u64; 2],
}

impl Periods {
    pub(super) fn new(train: &Train, steps_per_epoch: u64) -> Self {
        let epochs = |every: u64| steps_per_epoch.saturating_mul(every);
        Self {
            evaluation: [train.eval_every_steps, epochs(train.eval_every_epochs)],
            checkpoint: [train.checkpoint_every_steps, epochs(train.checkpoint_every_epochs)],
        }
    }

    /// Like [`Self::new`], but without evaluations.
    pub(super) fn of_checkpoints(train: &Train, steps_per_epoch: u64) -> Self {
        Self { evaluation: [0; 2], ..Self::new(train, steps_per_epoch) }
    }

    /// True if the config requests an evaluation after `step`.
    pub(super) fn evaluates(&self, step: u64) -> bool {
        self.evaluation.iter().any(|every| due(*every, step))
    }

    /// True if the config requests a checkpoint after `step`, regardless of the last one's age.
    pub(super) fn saves(&self, step: u64) -> bool {
        self.checkpoint.iter().any(|every| due(*every, step))
    }

    /// The first step after `step` with an evaluation or a checkpoint, if any.
    pub(super) fn next(&self, step: u64) -> Option<u64> {
        let all = self.evaluation.iter().chain(&self.checkpoint);
        all.filter_map(|every| next_multiple(*every, step)).min()
    }
}
