//! When a run saves a checkpoint, and what goes into it.

use std::time::{Duration, Instant};

use configs::{Config, Train};

use super::best::Best;
use super::trainer::Trainer;
use crate::checkpoint::{self, Keep, Override, Saved, Snapshot};
use crate::dataset::DataSet;
use crate::error::EngineError;
use crate::run_dir::RunDir;

/// Saves checkpoints of a run.
#[derive(Debug)]
pub(super) struct Saver {
    config_toml: String,
    data_identity: String,
    categories: Vec<(String, u64)>,
    /// Changes that the user accepted when resuming.
    overrides: Vec<Override>,
    /// Step and time of the last checkpoint that was written, or tried.
    last_step: Option<u64>,
    last_time: Instant,
}

impl Saver {
    pub(super) fn new(
        config: &Config,
        data: &DataSet,
        data_identity: String,
        overrides: Vec<Override>,
    ) -> Result<Self, EngineError> {
        Ok(Self {
            config_toml: config.to_toml()?,
            data_identity,
            categories: data.categories(),
            overrides,
            last_step: None,
            last_time: Instant::now(),
        })
    }

    /// The identity of the training data.
    pub(super) fn data_identity(&self) -> &str {
        &self.data_identity
    }

    /// The resolved config.
    pub(super) fn config_toml(&self) -> &str {
        &self.config_toml
    }

    /// Whether the config asks for a checkpoint after `step`.
    pub(super) fn is_due(&self, train: &Train, step: u64, batches_per_epoch: u64) -> bool {
        let per_epochs = batches_per_epoch.saturating_mul(train.checkpoint_every_epochs);
        due(train.checkpoint_every_steps, step) || due(per_epochs, step) || self.is_overdue(train)
    }

    /// Whether the last checkpoint is older than `train.checkpoint_every_minutes`.
    pub(super) fn is_overdue(&self, train: &Train) -> bool {
        let minutes = train.checkpoint_every_minutes;
        let interval = Duration::from_secs(minutes.saturating_mul(60));
        minutes > 0 && self.last_time.elapsed() >= interval
    }

    /// Saves the trainer's state, once per step. Returns what was written.
    ///
    /// # Errors
    /// Files that cannot be written; earlier checkpoints are untouched.
    pub(super) fn save(
        &mut self,
        trainer: &mut Trainer,
        run: &RunDir,
        train: &Train,
        best: &Best,
    ) -> Result<Option<Saved>, EngineError> {
        let steps_done = trainer.steps_done();
        if self.last_step == Some(steps_done) {
            return Ok(None);
        }
        run.check_lock()?;
        let params = trainer.params().to_vec();
        // One that fails is tried again when the next one is due, not after every step.
        self.last_time = Instant::now();
        let snapshot = Snapshot {
            state: trainer.state().fetch()?,
            params: &params,
            steps_done,
            categories: &self.categories,
            data: &self.data_identity,
            overrides: &self.overrides,
            config: &self.config_toml,
        };
        let keep = Keep { newest: train.keep_checkpoints, steps: &best.kept_steps() };
        let saved = checkpoint::save(run.path(), &snapshot, keep)?;
        self.last_step = Some(steps_done);
        trainer.restart_clock();
        Ok(Some(saved))
    }
}

/// Whether something that happens every so many steps happens after `step`; 0 is never.
pub(super) fn due(every: u64, step: u64) -> bool {
    every > 0 && step.is_multiple_of(every)
}
