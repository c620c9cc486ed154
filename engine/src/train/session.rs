//! A run: steps, log lines, evaluations, checkpoints, the stop at a target, and the report.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use configs::Config;
use dali::score::Summary;
use serde_json::json;

use super::journal::Journal;
use super::trainer::Trainer;
use crate::checkpoint::{self, Snapshot};
use crate::dataset::{DataSet, Split};
use crate::error::EngineError;
use crate::evaluate::{Evaluation, Evaluator};
use crate::metrics::{StepRecord, duration, forget_after};
use crate::model::classes_of;
use crate::progress::Progress;
use crate::run_dir::RunDir;
use crate::runtime::{Backend, ModelState};

/// Steps in a row whose losses are no numbers before a run with a dynamic loss scale gives up.
const MAX_BAD_STEPS: u64 = 10;

/// How a run came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All steps done.
    Done,
    /// The target was reached before.
    TargetReached,
    /// A signal asked for it; the checkpoint holds everything.
    Interrupted,
}

/// What a session needs beside its config.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// Where it writes.
    pub run: RunDir,
    /// Go on from the run's last checkpoint.
    pub resume: bool,
    /// Set by a signal handler to ask for a checkpoint and the end.
    pub interrupted: Arc<AtomicBool>,
    /// Speaks to the person.
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
    train: DataSet,
    trainer: Trainer,
    evaluator: Evaluator,
    journal: Journal,
    best: Option<f64>,
    started: Instant,
    train_seconds: f64,
    images_seen: u64,
    steps_here: u64,
    bad_steps: u64,
}

impl Session {
    /// Opens the data, builds the trainer, and restores the last checkpoint if asked to.
    ///
    /// # Errors
    /// Config, data or checkpoint at fault.
    pub fn new(config: Config, options: SessionOptions) -> Result<Self, EngineError> {
        let progress = options.progress;
        let train = DataSet::open(&config, Split::Train, &progress)?;
        let split = if config.eval.train_set { Split::Train } else { Split::Val };
        let val = DataSet::open(&config, split, &progress)?;
        check_categories(&train, &val)?;
        let mut fresh = config.clone();
        if options.resume {
            // The checkpoint holds all weights; the file that the run began with may be gone.
            fresh.model.backbone.weights = None;
        }
        let backend = &options.backend;
        let mut trainer = Trainer::new(&fresh, &train, backend)?;
        let classes = classes_of(trainer.params());
        let evaluator = Evaluator::new(&config, val, classes, backend, trainer.state())?;
        let mut best = None;
        if options.resume {
            let path = checkpoint::last(options.run.path())?;
            let (meta, _) = checkpoint::open(&path)?;
            if meta.categories != train.categories() {
                return Err(EngineError::Checkpoint {
                    path,
                    reason: "its classes are not those of the training data".into(),
                });
            }
            trainer.state().change(|state| checkpoint::restore(&path, state))?;
            trainer.resume_at(meta.batches);
            forget_after(&options.run.join("metrics.jsonl"), meta.batches)?;
            best = read_best(&options.run, meta.batches);
            progress.say(&format!("resuming after step {} from {}", meta.batches, path.display()));
        }
        let config_toml = config.to_toml()?;
        options.run.write("config.toml", config_toml.as_bytes())?;
        let window = config.train.log_every_steps as usize;
        let journal = Journal::open(&options.run, progress, window)?;
        let started = Instant::now();
        Ok(Self {
            config,
            config_toml,
            options,
            train,
            trainer,
            evaluator,
            journal,
            best,
            started,
            train_seconds: 0.0,
            images_seen: 0,
            steps_here: 0,
            bad_steps: 0,
        })
    }

    /// Trains to the end, evaluates, and writes `report.json`.
    ///
    /// # Errors
    /// Data that cannot be read, files that cannot be written, losses that are not numbers.
    pub fn run(&mut self) -> Result<(Outcome, Evaluation), EngineError> {
        self.announce();
        let total = self.config.train.steps;
        let bar = self.options.progress.bar("training", total);
        let mut outcome = Outcome::Done;
        let mut last_evaluation = None;
        self.trainer.restart_clock();
        while self.trainer.batches() < total {
            let record = self.trainer.step(self.next_stop())?;
            let step = record.step;
            self.check_finite(&record)?;
            self.train_seconds += record.step_seconds;
            self.images_seen += record.images as u64;
            self.steps_here += 1;
            self.journal.step(record)?;
            bar.set_position(step);
            self.log(step, total, &bar)?;
            last_evaluation = None;
            if step < total && self.evaluation_due(step) {
                let evaluation = bar.suspend(|| self.evaluate(step))?;
                let reached = self.target_reached(&evaluation);
                last_evaluation = Some(evaluation);
                if reached {
                    outcome = Outcome::TargetReached;
                    break;
                }
            }
            if step < total && due(self.config.train.checkpoint_every_steps, step) {
                self.save()?;
            }
            // What is in flight is seen to its end, so that the checkpoint is of a whole step.
            let interrupted = self.options.interrupted.load(Ordering::Relaxed);
            if interrupted && self.trainer.in_flight() == 0 {
                outcome = Outcome::Interrupted;
                break;
            }
        }
        bar.finish_and_clear();
        self.save()?;
        let evaluation = match last_evaluation {
            Some(evaluation) => evaluation,
            None if outcome == Outcome::Interrupted => Evaluation::none(),
            None => self.evaluate(self.trainer.batches())?,
        };
        if outcome == Outcome::Done && self.target_reached(&evaluation) {
            outcome = Outcome::TargetReached;
        }
        if outcome != Outcome::Interrupted {
            self.report(&evaluation, outcome)?;
        }
        Ok((outcome, evaluation))
    }

    /// The evaluator and the trained state, for pictures of what the model finds.
    pub fn evaluator(&mut self) -> (&mut Evaluator, &mut ModelState) {
        (&mut self.evaluator, self.trainer.state())
    }

    /// The first step after which something other than a step is to happen.
    fn next_stop(&self) -> u64 {
        let now = self.trainer.batches();
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

    fn announce(&mut self) {
        let memory = self.trainer.memory();
        let mib = |bytes: usize| bytes as f64 / (1 << 20) as f64;
        let trained: usize = self
            .trainer
            .params()
            .iter()
            .filter(|p| p.trained.is_some())
            .map(|p| p.shape.iter().product::<usize>())
            .sum();
        let text = format!(
            "device {}, {} images, {} classes, batch {}, {} batches an epoch, \
             {:.2} M trained parameters\nmemory: needs {:.0} MiB for activations and gradients, \
             {:.0} MiB for weights and optimizer\nrun directory: {}",
            self.options.backend.describe(),
            self.train.images.len(),
            self.train.num_classes(),
            self.config.train.batch_size,
            self.trainer.batches_per_epoch(),
            trained as f64 / 1e6,
            mib(memory.arena_bytes),
            mib(memory.state_bytes),
            self.options.run.path().display(),
        );
        self.journal.say(&text);
        let backbone = &self.config.model.backbone;
        if let (Some(path), Some(report)) = (&backbone.weights, self.trainer.loaded()) {
            self.journal.say(&format!("weights {path}: {}", report.describe()));
        } else if backbone.weights.is_none() && backbone.frozen_stages > 0 {
            self.journal.say(&format!(
                "warning: {} stages of the backbone are frozen at random weights; set \
                 model.backbone.weights, or model.backbone.frozen_stages=0",
                backbone.frozen_stages
            ));
        }
    }

    fn log(
        &mut self,
        step: u64,
        total: u64,
        bar: &indicatif::ProgressBar,
    ) -> Result<(), EngineError> {
        if step != total && !due(self.config.train.log_every_steps, step) {
            return Ok(());
        }
        let memory = self.trainer.memory();
        bar.suspend(|| self.journal.log(total, memory.bytes()))
    }

    /// Stops a run whose losses are no numbers. A dynamic loss scale skips such a step; if the
    /// next ones are no better, the weights are lost and it would skip for ever.
    fn check_finite(&mut self, record: &StepRecord) -> Result<(), EngineError> {
        let Some((name, value)) = record.losses.iter().find(|(_, value)| !value.is_finite()) else {
            self.bad_steps = 0;
            return Ok(());
        };
        self.bad_steps += 1;
        if self.config.solver.dynamic_loss_scale && self.bad_steps < MAX_BAD_STEPS {
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

    fn evaluation_due(&self, step: u64) -> bool {
        let per_epoch = self.trainer.batches_per_epoch() * self.config.train.eval_every_epochs;
        due(self.config.train.eval_every_steps, step) || due(per_epoch, step)
    }

    fn evaluate(&mut self, step: u64) -> Result<Evaluation, EngineError> {
        let started = Instant::now();
        let evaluation = self.evaluator.run(self.trainer.state(), &self.options.progress)?;
        let seconds = started.elapsed().as_secs_f64();
        let mut line = json!({"step": step, "eval_seconds": seconds});
        let mut text = format!("step {step}: evaluated in {seconds:.1} s");
        for (name, summary) in evaluation.summaries() {
            line[name] = stats_json(summary);
            text += &format!("  {name} AP {:.3} AP50 {:.3}", summary.stats[0], summary.stats[1]);
        }
        self.journal.say(&text);
        self.journal.evaluation(step, &line, evaluation.summaries())?;
        if let Some(ap) = evaluation.summaries().last().map(|(_, s)| s.ap())
            && self.best.is_none_or(|best| ap > best)
        {
            self.best = Some(ap);
            let json = json!({"step": step, "ap": ap}).to_string();
            self.options.run.write("best.json", json.as_bytes())?;
        }
        self.trainer.restart_clock();
        Ok(evaluation)
    }

    fn target_reached(&self, evaluation: &Evaluation) -> bool {
        let train = &self.config.train;
        let met = |target: Option<f64>, summary: Option<&Summary>| {
            target.map(|t| summary.is_some_and(|s| s.ap() >= t))
        };
        let box_met = met(train.target_box, evaluation.bbox.as_ref());
        let mask_met = met(train.target_mask, evaluation.segm.as_ref());
        let asked = box_met.is_some() || mask_met.is_some();
        asked && box_met.unwrap_or(true) && mask_met.unwrap_or(true)
    }

    fn save(&mut self) -> Result<(), EngineError> {
        let (batches, params) = (self.trainer.batches(), self.trainer.params().to_vec());
        let snapshot = Snapshot {
            state: self.trainer.state().fetch()?,
            params: &params,
            batches,
            categories: &self.train.categories(),
            config: &self.config_toml,
        };
        checkpoint::save(self.options.run.path(), &snapshot, self.config.train.keep_checkpoints)?;
        self.trainer.restart_clock();
        Ok(())
    }

    fn report(&mut self, evaluation: &Evaluation, outcome: Outcome) -> Result<(), EngineError> {
        use sha2::{Digest, Sha256};
        let digest = Sha256::digest(self.config_toml.as_bytes());
        let mut report = json!({
            "steps": self.trainer.batches(),
            "seconds": self.started.elapsed().as_secs_f64(),
            "train_seconds": self.train_seconds,
            "images_per_second": self.images_seen as f64 / self.train_seconds.max(1e-9),
            "device": self.options.backend.name(),
            "threads": std::thread::available_parallelism().map_or(1, usize::from),
            "target_reached": outcome == Outcome::TargetReached,
            "config_sha256": digest.iter().map(|b| format!("{b:02x}")).collect::<String>(),
            "version": env!("CARGO_PKG_VERSION"),
        });
        for (name, summary) in evaluation.summaries() {
            report[name] = stats_json(summary);
        }
        let text = serde_json::to_vec_pretty(&report)
            .map_err(|e| EngineError::Usage(format!("report.json: {e}")))?;
        self.options.run.write("report.json", &text)?;
        self.journal.say(&format!(
            "{} steps in {}, {:.1} images/s while training",
            self.steps_here,
            duration(self.started.elapsed().as_secs_f64()),
            self.images_seen as f64 / self.train_seconds.max(1e-9),
        ));
        Ok(())
    }
}

/// The 12 numbers under COCO's names; an undefined one is null.
fn stats_json(summary: &Summary) -> serde_json::Value {
    let entries = summary.named().into_iter().map(|(name, value)| {
        let value = if value < 0.0 { serde_json::Value::Null } else { value.into() };
        (name.to_string(), value)
    });
    serde_json::Value::Object(entries.collect())
}

fn due(every: u64, step: u64) -> bool {
    every > 0 && step.is_multiple_of(every)
}

/// The best AP so far, as the run noted it; nothing if it was reached after step `batches`, which
/// will come again.
fn read_best(run: &RunDir, batches: u64) -> Option<f64> {
    let text = std::fs::read(run.join("best.json")).ok()?;
    let best: serde_json::Value = serde_json::from_slice(&text).ok()?;
    if best["step"].as_u64()? <= batches { best["ap"].as_f64() } else { None }
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
