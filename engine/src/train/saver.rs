//! When a run saves a checkpoint, and what goes into it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use configs::Train;
use graph::StateSet;

use super::background::Background;
use crate::checkpoint::{self, Keep, Override, Saved, Snapshot};
use crate::dataset::DataSet;
use crate::error::EngineError;
use crate::model::Param;
use crate::run_dir::RunDir;

/// Saves checkpoints of a run, each on a thread of its own.
#[derive(Debug)]
pub(super) struct Saver {
    facts: Arc<Facts>,
    /// Step of the last checkpoint that was written.
    last_step: Option<u64>,
    /// When the last one was written, or tried.
    last_time: Instant,
    saving: Option<Saving>,
}

/// What all checkpoints of a session say alike.
#[derive(Debug)]
struct Facts {
    config_toml: String,
    data_identity: String,
    categories: Vec<(String, u64)>,
    /// Changes that the user accepted when resuming.
    overrides: Vec<Override>,
    params: Vec<Param>,
}

/// A checkpoint that is being written.
#[derive(Debug)]
struct Saving {
    step: u64,
    thread: Background<Result<Saved, EngineError>>,
}

/// A checkpoint's step, and how writing it went.
pub(super) type Written = (u64, Result<Saved, EngineError>);

impl Saver {
    pub(super) fn new(
        config_toml: String,
        data: &DataSet,
        data_identity: String,
        overrides: Vec<Override>,
        params: Vec<Param>,
    ) -> Self {
        let categories = data.categories();
        let facts = Facts { config_toml, data_identity, categories, overrides, params };
        let (last_time, facts) = (Instant::now(), Arc::new(facts));
        Self { facts, last_step: None, last_time, saving: None }
    }

    /// Whether the config asks for a checkpoint after `step`, however old the last one is.
    pub(super) fn is_due(train: &Train, step: u64, batches_per_epoch: u64) -> bool {
        let per_epochs = batches_per_epoch.saturating_mul(train.checkpoint_every_epochs);
        due(train.checkpoint_every_steps, step) || due(per_epochs, step)
    }

    /// Whether the last checkpoint is older than `train.checkpoint_every_minutes`, and none is
    /// being written.
    pub(super) fn is_overdue(&self, train: &Train) -> bool {
        let minutes = train.checkpoint_every_minutes;
        let interval = Duration::from_secs(minutes.saturating_mul(60));
        minutes > 0 && self.saving.is_none() && self.last_time.elapsed() >= interval
    }

    /// Whether the checkpoint of `step` is written.
    pub(super) fn has_saved(&self, step: u64) -> bool {
        self.last_step == Some(step)
    }

    /// Begins to write the checkpoint of `step`, after which the state is `state`. The one before
    /// must be finished.
    ///
    /// # Errors
    /// A run directory that another process has taken over; no thread.
    pub(super) fn begin(
        &mut self,
        step: u64,
        state: Arc<StateSet>,
        run: &RunDir,
        keep: (usize, Vec<u64>),
    ) -> Result<(), EngineError> {
        assert!(self.saving.is_none(), "a checkpoint is being written");
        // One that fails is tried again when the next one is due, not after every step.
        self.last_time = Instant::now();
        let (run, facts) = (run.clone(), self.facts.clone());
        let save = move || {
            run.check_lock()?;
            let snapshot = Snapshot {
                state: &state,
                params: &facts.params,
                steps_done: step,
                categories: &facts.categories,
                data: &facts.data_identity,
                overrides: &facts.overrides,
                config: &facts.config_toml,
            };
            let (newest, steps) = keep;
            checkpoint::save(run.path(), &snapshot, Keep { newest, steps: &steps })
        };
        let thread = Background::start("checkpoint", save)?;
        self.saving = Some(Saving { step, thread });
        Ok(())
    }

    /// Whether a checkpoint has been written, or has failed, since it was begun.
    pub(super) fn is_ready(&self) -> bool {
        self.saving.as_ref().is_some_and(|saving| saving.thread.is_ready())
    }

    /// Waits for the checkpoint that is being written, if there is one.
    pub(super) fn finish(&mut self) -> Option<Written> {
        let Saving { step, thread } = self.saving.take()?;
        let saved = thread.join();
        if saved.is_ok() {
            self.last_step = Some(step);
        }
        Some((step, saved))
    }
}

/// Whether something that happens every so many steps happens after `step`; 0 is never.
pub(super) fn due(every: u64, step: u64) -> bool {
    every > 0 && step.is_multiple_of(every)
}
