//! Writes a run's checkpoints, and decides which states may be saved.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::Train;
use dali::decode::Exif;
use graph::StateSet;

use super::background::Background;
use super::best::Best;
use super::divergence::Divergence;
use super::journal::Journal;
use super::trainer::Trainer;
use super::verdict::Phase;
use crate::checkpoint::{self, Keep, Override, Saved, Snapshot};
use crate::error::EngineError;
use crate::model::{Param, is_transient};
use crate::run_dir::RunDir;

/// Number of hash digits in the log, enough to distinguish runs.
const HASH_DIGITS: usize = 16;

/// A state that may be saved: the losses of its step are finite, no earlier evaluation is pending
/// (it may change the checkpoints to keep), and no evaluation has ended the run.
#[derive(Debug)]
pub(super) struct GoodState {
    step: u64,
    state: Arc<StateSet>,
}

impl GoodState {
    /// True if the state after a step with these losses and this evaluation may be saved.
    pub(super) fn exists(losses: &Divergence, evaluation: &Phase) -> bool {
        losses.is_sound() && evaluation.lets_save()
    }

    /// A copy of the state after the last step; `None` if it may not be saved. Panics while steps
    /// are in flight.
    ///
    /// # Errors
    /// Device errors.
    pub(super) fn of(
        trainer: &mut Trainer,
        losses: &Divergence,
        evaluation: &Phase,
    ) -> Result<Option<Self>, EngineError> {
        let step = trainer.steps_done();
        if !losses.is_sound() {
            tracing::info!(step, "saved nothing: the losses are non-finite");
        }
        if !Self::exists(losses, evaluation) {
            return Ok(None);
        }
        Ok(Some(Self { step, state: copy_of_state(trainer)? }))
    }

    /// The state, for restoring.
    pub(super) fn into_state(self) -> Arc<StateSet> {
        self.state
    }
}

/// A copy of the persistent state after the last step.
///
/// # Errors
/// Device errors.
pub(super) fn copy_of_state(trainer: &mut Trainer) -> Result<Arc<StateSet>, EngineError> {
    Ok(Arc::new(trainer.state().fetch()?.without(is_transient)))
}

/// Writes checkpoints on a separate thread, one at a time.
#[derive(Debug)]
pub(super) struct Checkpoints {
    run: RunDir,
    facts: Arc<SessionFacts>,
    /// Number of newest checkpoints to keep, in addition to those with the best scores.
    keep_newest: usize,
    /// `train.checkpoint_every_minutes`; `None` if that is 0 (never).
    interval: Option<Duration>,
    /// Step of the last checkpoint that was written.
    last_step: Option<u64>,
    /// Time at which writing the last checkpoint started.
    last_time: Instant,
    /// Step and thread of the checkpoint being written.
    writing: Option<(u64, Background<Result<Saved, EngineError>>)>,
}

/// Contents that all checkpoints of a session share.
#[derive(Debug)]
pub(super) struct SessionFacts {
    /// The resolved config.
    pub(super) config_toml: String,
    pub(super) data_identity: String,
    /// How EXIF orientations of the training images were treated, if any image has one.
    pub(super) exif: Option<Exif>,
    pub(super) categories: Vec<(String, u64)>,
    /// Names of the model's keypoints.
    pub(super) keypoints: Vec<String>,
    /// Changes that the user accepted when resuming.
    pub(super) overrides: Vec<Override>,
    pub(super) params: Vec<Param>,
    /// True if parameter averages are scored, and therefore saved as the weights.
    pub(super) averages: bool,
}

impl Checkpoints {
    /// The writer of checkpoints into `run`, before the first one.
    pub(super) fn new(run: &RunDir, train: &Train, facts: SessionFacts) -> Self {
        let minutes = train.checkpoint_every_minutes;
        Self {
            run: run.clone(),
            facts: Arc::new(facts),
            keep_newest: train.keep_checkpoints,
            interval: (minutes > 0).then(|| Duration::from_secs(minutes.saturating_mul(60))),
            last_step: None,
            last_time: Instant::now(),
            writing: None,
        }
    }

    /// True if the last checkpoint is older than `train.checkpoint_every_minutes`, and no
    /// checkpoint is being written.
    pub(super) fn is_overdue(&self) -> bool {
        let is_over = |interval| self.last_time.elapsed() >= interval;
        self.writing.is_none() && self.interval.is_some_and(is_over)
    }

    /// True if the checkpoint of `step` is written.
    pub(super) fn has_saved(&self, step: u64) -> bool {
        self.last_step == Some(step)
    }

    /// Starts writing a checkpoint, unless it is already written. Panics while one is being
    /// written.
    ///
    /// # Errors
    /// The thread cannot be created.
    pub(super) fn begin(&mut self, good: &GoodState, best: &Best) -> Result<(), EngineError> {
        assert!(self.writing.is_none(), "a checkpoint is being written");
        let step = good.step;
        if self.has_saved(step) {
            return Ok(());
        }
        // Set before writing, so that a failed checkpoint is retried after the interval, not after
        // every step.
        self.last_time = Instant::now();
        let (run, facts, state) = (self.run.clone(), self.facts.clone(), good.state.clone());
        let (newest, steps) = (self.keep_newest, best.kept_steps());
        let save = move || {
            run.check_lock()?;
            let snapshot = Snapshot {
                state: &state,
                params: &facts.params,
                averages: facts.averages,
                steps_done: step,
                categories: &facts.categories,
                keypoints: &facts.keypoints,
                data: &facts.data_identity,
                exif: facts.exif,
                overrides: &facts.overrides,
                config: &facts.config_toml,
            };
            checkpoint::save(run.path(), &snapshot, Keep { newest, steps: &steps })
        };
        self.writing = Some((step, Background::start("checkpoint", save)?));
        Ok(())
    }

    /// True if writing the checkpoint has completed or failed.
    pub(super) fn is_ready(&self) -> bool {
        self.writing.as_ref().is_some_and(|(_, thread)| thread.is_ready())
    }

    /// Waits for the checkpoint being written, if any, and logs it.
    ///
    /// # Errors
    /// Files that cannot be written; a run directory that another process has taken over.
    pub(super) fn join(&mut self, journal: &mut Journal) -> Result<(), EngineError> {
        let Some((step, thread)) = self.writing.take() else { return Ok(()) };
        let saved = thread.join()?;
        self.last_step = Some(step);
        let (folder, hash) = (checkpoint::folder(step), &saved.weights_sha256[..HASH_DIGITS]);
        journal.say(&format!("step {step}: saved {folder}  weights {hash}"));
        Ok(())
    }

    /// Like [`Self::join`], but only warns about a file that cannot be written: the last good
    /// checkpoint still exists, and the next one may succeed.
    ///
    /// # Errors
    /// A run directory that another process has taken over.
    pub(super) fn finish(&mut self, journal: &mut Journal) -> Result<(), EngineError> {
        let step = self.writing.as_ref().map_or(0, |(step, _)| *step);
        match self.join(journal) {
            Err(fault @ EngineError::Io { .. }) => {
                let fault = format!("warning: no checkpoint after step {step}: {fault}");
                journal.say(&format!("{fault}; training continues"));
                Ok(())
            }
            joined => joined,
        }
    }
}
