//! A run: steps, log lines, evaluations, checkpoints, and the stop at a target.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use configs::Config;

use super::banner::banner;
use super::divergence::Divergence;
use super::journal::Journal;
use super::report::{self, Facts, Totals};
use super::scores::{Scores, targets_reached};
use super::trainer::Trainer;
use crate::checkpoint::{self, Snapshot};
use crate::dataset::{DataSet, Split};
use crate::error::EngineError;
use crate::evaluate::{Evaluation, Evaluator};
use crate::metrics::{StepRecord, forget_after};
use crate::model::classes_of;
use crate::progress::Progress;
use crate::run_dir::RunDir;
use crate::runtime::{Backend, ModelState};

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All steps done.
    Done,
    /// The target was reached first.
    TargetReached,
    /// Interrupted by a signal; the checkpoint is complete.
    Interrupted,
}

impl Outcome {
    fn reason(self) -> &'static str {
        match self {
            Outcome::Done => "all steps are done",
            Outcome::TargetReached => "the target is reached",
            Outcome::Interrupted => "a signal asked for it",
        }
    }
}

/// What a session needs besides its config.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// The run directory.
    pub run: RunDir,
    /// Resume from the run's last checkpoint.
    pub resume: bool,
    /// Set by a signal handler to request a checkpoint and the end.
    pub interrupted: Arc<AtomicBool>,
    /// Reports to the terminal.
    pub progress: Progress,
    /// Runs the programs.
    pub backend: Backend,
}

/// A training run.
#[derive(Debug)]
pub struct Session {
    config: Config,
    config_toml: String,
    options: SessionOptions,
    data: DataSet,
    trainer: Trainer,
    scores: Scores,
    journal: Journal,
    divergence: Divergence,
    totals: Totals,
    /// Loss scale of the step before.
    last_scale: Option<f32>,
}

impl Session {
    /// Opens the data, builds the trainer, and restores the last checkpoint if asked to.
    ///
    /// # Errors
    /// A bad config, bad data, or a bad checkpoint.
    pub fn new(config: Config, options: SessionOptions) -> Result<Self, EngineError> {
        let progress = options.progress;
        let data = DataSet::open(&config, Split::Train, &progress)?;
        let split = if config.eval.train_set { Split::Train } else { Split::Val };
        let val = DataSet::open(&config, split, &progress)?;
        check_categories(&data, &val)?;
        let mut fresh = config.clone();
        if options.resume {
            // The checkpoint has all weights; the file that the run started from may be gone.
            fresh.model.backbone.weights = None;
            fresh.model.weights = None;
        }
        let backend = &options.backend;
        let mut trainer = Trainer::new(&fresh, &data, backend)?;
        let classes = classes_of(trainer.params());
        let evaluator = Evaluator::new(&config, val, classes, backend, trainer.state())?;
        let mut scores = Scores::new(evaluator);
        if options.resume {
            let steps_done = restore(&mut trainer, &data, &options)?;
            scores.resume(&options.run, steps_done);
        }
        let config_toml = config.to_toml()?;
        options.run.write("config.toml", config_toml.as_bytes())?;
        let window = config.train.log_every_steps as usize;
        let journal = Journal::open(&options.run, progress, window)?;
        let (divergence, totals) = (Divergence::new(&config), Totals::new());
        Ok(Self {
            config,
            config_toml,
            options,
            data,
            trainer,
            scores,
            journal,
            divergence,
            totals,
            last_scale: None,
        })
    }

    /// Trains to the end, evaluates, and writes `report.json`.
    ///
    /// # Errors
    /// Data that cannot be read, files that cannot be written, non-finite losses.
    pub fn run(&mut self) -> Result<(Outcome, Evaluation), EngineError> {
        let options = &self.options;
        let (backend, run) = (&options.backend, &options.run);
        for text in banner(&self.config, &self.data, &self.trainer, backend, run) {
            self.journal.say(&text);
        }
        let (mut outcome, last_evaluation) = self.train()?;
        self.save()?;
        let evaluation = match last_evaluation {
            Some(evaluation) => evaluation,
            None if outcome == Outcome::Interrupted => Evaluation::none(),
            None => self.evaluate(self.trainer.steps_done())?,
        };
        if outcome == Outcome::Done && targets_reached(&self.config.train, &evaluation) {
            outcome = Outcome::TargetReached;
        }
        let (steps_done, of) = (self.trainer.steps_done(), self.config.train.steps);
        tracing::info!(steps_done, of, "stops: {}", outcome.reason());
        if outcome != Outcome::Interrupted {
            self.report(&evaluation, outcome)?;
        }
        Ok((outcome, evaluation))
    }

    /// The evaluator and the trained state, for pictures of detections.
    pub fn evaluator(&mut self) -> (&mut Evaluator, &mut ModelState) {
        (&mut self.scores.evaluator, self.trainer.state())
    }

    /// Runs steps until the run ends. Returns the evaluation too, if the last step had one.
    fn train(&mut self) -> Result<(Outcome, Option<Evaluation>), EngineError> {
        let total = self.config.train.steps;
        let bar = self.options.progress.bar("training", total);
        let mut outcome = Outcome::Done;
        let mut last_evaluation = None;
        self.trainer.restart_clock();
        while self.trainer.steps_done() < total {
            let record = self.trainer.step(self.next_stop())?;
            let step = record.step;
            self.divergence.check(&record)?;
            self.log_loss_scale(&record);
            self.totals.add(&record);
            self.journal.step(record)?;
            bar.set_position(step);
            self.log(step, &bar)?;
            last_evaluation = None;
            if step < total && self.evaluation_due(step) {
                let evaluation = bar.suspend(|| self.evaluate(step))?;
                let reached = targets_reached(&self.config.train, &evaluation);
                last_evaluation = Some(evaluation);
                if reached {
                    outcome = Outcome::TargetReached;
                    break;
                }
            }
            if step < total && due(self.config.train.checkpoint_every_steps, step) {
                self.save()?;
            }
            // Finish all steps in flight, so that the checkpoint is of a whole step.
            let interrupted = self.options.interrupted.load(Ordering::Relaxed);
            if interrupted && self.trainer.in_flight() == 0 {
                outcome = Outcome::Interrupted;
                break;
            }
        }
        bar.finish_and_clear();
        Ok((outcome, last_evaluation))
    }

    /// Logs a skipped step, and a change of the loss scale.
    fn log_loss_scale(&mut self, record: &StepRecord) {
        let (step, loss_scale) = (record.step, record.loss_scale);
        if !record.applied {
            tracing::info!(step, loss_scale, "skipped a step: its gradients overflow");
        }
        let before = self.last_scale.replace(loss_scale);
        if before.is_some_and(|before| before != loss_scale) {
            tracing::info!(step, from = before, to = loss_scale, "changed the loss scale");
        }
    }

    /// The first step that is followed by something other than a step.
    fn next_stop(&self) -> u64 {
        let now = self.trainer.steps_done();
        if self.options.interrupted.load(Ordering::Relaxed) {
            return now;
        }
        let train = &self.config.train;
        let per_epoch = self.trainer.batches_per_epoch() * train.eval_every_epochs;
        let periods = [train.eval_every_steps, per_epoch, train.checkpoint_every_steps];
        let next = |every: &u64| (now / every + 1) * every;
        let stops = periods.iter().filter(|every| **every > 0).map(next);
        stops.min().unwrap_or(train.steps).min(train.steps)
    }

    fn log(&mut self, step: u64, bar: &indicatif::ProgressBar) -> Result<(), EngineError> {
        let train = &self.config.train;
        if step != train.steps && !due(train.log_every_steps, step) {
            return Ok(());
        }
        let memory = self.trainer.memory();
        bar.suspend(|| self.journal.log(train.steps, memory.bytes()))
    }

    fn evaluation_due(&self, step: u64) -> bool {
        let per_epoch = self.trainer.batches_per_epoch() * self.config.train.eval_every_epochs;
        due(self.config.train.eval_every_steps, step) || due(per_epoch, step)
    }

    fn evaluate(&mut self, step: u64) -> Result<Evaluation, EngineError> {
        let SessionOptions { run, progress, .. } = &self.options;
        let state = self.trainer.state();
        tracing::info!(step, "evaluates");
        let evaluation = self.scores.evaluate(step, state, run, &mut self.journal, progress)?;
        self.trainer.restart_clock();
        Ok(evaluation)
    }

    fn save(&mut self) -> Result<(), EngineError> {
        let (steps_done, params) = (self.trainer.steps_done(), self.trainer.params().to_vec());
        let snapshot = Snapshot {
            state: self.trainer.state().fetch()?,
            params: &params,
            steps_done,
            categories: &self.data.categories(),
            config: &self.config_toml,
        };
        checkpoint::save(self.options.run.path(), &snapshot, self.config.train.keep_checkpoints)?;
        self.trainer.restart_clock();
        Ok(())
    }

    fn report(&mut self, evaluation: &Evaluation, outcome: Outcome) -> Result<(), EngineError> {
        let facts = Facts {
            steps_done: self.trainer.steps_done(),
            device: self.options.backend.name(),
            target_reached: outcome == Outcome::TargetReached,
            config_toml: &self.config_toml,
        };
        report::write(&self.options.run, &self.totals, &facts, evaluation)?;
        self.journal.say(&self.totals.describe());
        Ok(())
    }
}

/// Restores a run's last checkpoint. Returns the number of steps done.
fn restore(
    trainer: &mut Trainer,
    data: &DataSet,
    options: &SessionOptions,
) -> Result<u64, EngineError> {
    let path = checkpoint::last(options.run.path())?;
    let (meta, _) = checkpoint::open(&path)?;
    if meta.categories != data.categories() {
        return Err(EngineError::Checkpoint {
            path,
            reason: "its classes are not those of the training data".into(),
        });
    }
    trainer.state().change(|state| checkpoint::restore(&path, state))?;
    let steps_done = meta.steps_done;
    trainer.resume_at(steps_done);
    forget_after(&options.run.join("metrics.jsonl"), steps_done)?;
    options.progress.say(&format!("resuming after step {steps_done} from {}", path.display()));
    Ok(steps_done)
}

fn due(every: u64, step: u64) -> bool {
    every > 0 && step.is_multiple_of(every)
}

fn check_categories(train: &DataSet, val: &DataSet) -> Result<(), EngineError> {
    if train.categories() == val.categories() {
        return Ok(());
    }
    Err(EngineError::Usage(format!(
        "{} and {} name different classes: evaluate on data with the training data's categories",
        train.store.path().display(),
        val.store.path().display()
    )))
}
