//! A run: steps, log lines, evaluations, checkpoints, and the stop at a target.

use std::sync::atomic::Ordering;
use std::time::Instant;

use configs::Config;
use serde::{Deserialize, Serialize};

use super::agreement;
use super::banner::banner;
use super::best::Best;
use super::divergence::{Divergence, advice, bad_value};
use super::journal::Journal;
use super::options::{Outcome, SessionOptions};
use super::replay::Replay;
use super::report::{Facts, Report, State};
use super::resume::{self, Resumed};
use super::saver::{Saver, due};
use super::scores::{Scores, targets_reached};
use super::totals::Totals;
use super::trainer::Trainer;
use crate::checkpoint;
use crate::dataset::{DataSet, Split};
use crate::error::EngineError;
use crate::evaluate::{Evaluation, Evaluator};
use crate::metrics::StepRecord;
use crate::model::{Division, classes_of};
use crate::runtime::ModelState;

/// Digits of a checkpoint's hash in the log: enough to tell runs apart.
const HASH_DIGITS: usize = 16;

/// How a run ends, with the evaluation of its last step if it has one.
type End = (Outcome, Option<Scored>);

/// An evaluation, and what follows from it.
#[derive(Debug)]
struct Scored {
    evaluation: Evaluation,
    verdict: Verdict,
}

/// What an evaluation means for the run, on every rank.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Verdict {
    is_target_reached: bool,
    /// `train.patience` is at its end.
    is_exhausted: bool,
}

/// A training run.
#[derive(Debug)]
pub struct Session {
    config: Config,
    options: SessionOptions,
    data: DataSet,
    trainer: Trainer,
    scores: Scores,
    best: Best,
    saver: Saver,
    journal: Journal,
    divergence: Divergence,
    totals: Totals,
    report: Report,
    /// Whether the run resumed at a step whose evaluation was interrupted or never begun.
    owes_evaluation: bool,
    /// Loss scale of the step before.
    last_scale: Option<f32>,
    /// The first file that should outlive the run and could not be written.
    unwritten: Option<EngineError>,
}

impl Session {
    /// Opens the data, builds the trainer, and restores the last checkpoint if asked to.
    ///
    /// # Errors
    /// A bad config, bad data, or a bad checkpoint; a resumed run whose config or data change what
    /// a step means.
    pub fn new(config: Config, options: SessionOptions) -> Result<Self, EngineError> {
        let (progress, run, team) = (options.progress, options.run.clone(), options.team.clone());
        let backend = &options.backend;
        // Before any data is drawn or prepared for ranks that cannot share a batch.
        agreement::check_config(&team, &config)?;
        let division = division(&config, &options)?;
        // Before any data is drawn or prepared for a config that is refused.
        let mut resumed = match options.resume {
            true => Some(Resumed::open(&config, &options)?),
            false => None,
        };
        team.set_doing(0, "opening its data");
        let open = |split| {
            team.first_of_host_first("the data of a host", || {
                DataSet::open(&config, split, &progress)
            })
        };
        let data = open(Split::Train)?;
        let identity = resume::identity_of(&data);
        if let Some(resumed) = &mut resumed {
            resumed.check_data(&data, &identity, &options)?;
        }
        let split = if config.eval.train_set { Split::Train } else { Split::Val };
        let val = open(split)?;
        check_categories(&data, &val)?;
        let mut fresh = config.clone();
        if options.resume {
            // The checkpoint has all weights; the file that the run started from may be gone.
            fresh.model.backbone.weights = None;
            fresh.model.weights = None;
        }
        let stop = options.interrupted.clone();
        let mut trainer = Trainer::of_rank(&fresh, &data, backend, division, stop)?;
        let classes = classes_of(trainer.params());
        let mut evaluator = Evaluator::new(&config, val, classes, backend, trainer.state())?;
        evaluator.interrupt_by(options.interrupted.clone());
        let scored_on = if config.eval.train_set { &data } else { evaluator.data() };
        let mut best = Best::new(&config, &resume::identity_of(scored_on));
        let (mut overrides, mut owes_evaluation) = (Vec::new(), false);
        if let Some(resumed) = resumed {
            let steps = config.train.steps;
            resumed.restore(&mut trainer, &options)?;
            owes_evaluation = team.share("the evaluations before", || {
                let steps_done = trainer.steps_done();
                if let Some(note) = best.resume(&run, steps_done)? {
                    progress.say(&note);
                }
                Ok(!resumed.forget_later(&run, steps)?)
            })?;
            overrides = resumed.overrides;
        }
        agreement::check_data(&team, &identity, evaluator.data(), trainer.state())?;
        let saver = Saver::new(&config, &data, identity, overrides)?;
        if team.is_first() {
            run.write("config.toml", saver.config_toml().as_bytes())?;
        }
        let window = config.train.log_every_steps as usize;
        let names = trainer.trained();
        Ok(Self {
            journal: Journal::open(team.is_first().then_some(&run), progress, window, names)?,
            divergence: Divergence::new(&config),
            totals: Totals::new(),
            report: Report::new(&run, trainer.steps_done()),
            scores: Scores::new(evaluator),
            config,
            options,
            data,
            trainer,
            best,
            saver,
            owes_evaluation,
            last_scale: None,
            unwritten: None,
        })
    }

    /// Trains to the end, evaluates, and writes `report.json`. A full disk does not keep it from
    /// its scores: [`Session::finish`] tells what could not be written.
    ///
    /// # Errors
    /// Data that cannot be read, non-finite losses; an interrupted run that cannot be saved.
    pub fn run(&mut self) -> Result<(Outcome, Evaluation), EngineError> {
        let options = &self.options;
        let (backend, run) = (&options.backend, &options.run);
        for text in banner(&self.config, &self.data, &self.trainer, backend, run, &options.team) {
            self.journal.say(&text);
        }
        self.report_on_the_way(None, State::Training);
        let (mut outcome, mut last) = self.train()?;
        let is_saved = self
            .options
            .team
            .share("whether there is a checkpoint", || Ok(self.last_checkpoint().is_some()))?;
        if self.divergence.is_sound() {
            self.save_last(outcome)?;
        } else if outcome != Outcome::Interrupted || !is_saved {
            return Err(self.diverged());
        } else {
            self.say_unsaved();
        }
        if outcome != Outcome::Interrupted && last.is_none() {
            last = self.evaluate(self.trainer.steps_done())?;
        }
        let Some(scored) = last.filter(|_| outcome != Outcome::Interrupted) else {
            self.log_outcome(Outcome::Interrupted);
            self.report_on_the_way(None, State::Ended(Outcome::Interrupted));
            return Ok((Outcome::Interrupted, Evaluation::none()));
        };
        if outcome == Outcome::Done && scored.verdict.is_target_reached {
            outcome = Outcome::TargetReached;
        }
        let evaluation = scored.evaluation;
        self.log_outcome(outcome);
        let reported = self.report(Some(&evaluation), State::Ended(outcome));
        if let Some(classes) = self.report.class_table() {
            self.journal.say(classes);
        }
        self.journal.say(&self.totals.describe());
        self.keep_fault(reported)?;
        Ok((outcome, evaluation))
    }

    /// Ends the session.
    ///
    /// # Errors
    /// The first file that could not be written at the end: [`EngineError::Unsaved`] or
    /// [`EngineError::Io`].
    pub fn finish(self) -> Result<(), EngineError> {
        self.unwritten.map_or(Ok(()), Err)
    }

    fn log_outcome(&self, outcome: Outcome) {
        let (steps_done, of) = (self.trainer.steps_done(), self.config.train.steps);
        tracing::info!(steps_done, of, "stops: {}", outcome.reason());
    }

    /// The evaluator and the trained state, for pictures of detections.
    pub fn evaluator(&mut self) -> (&mut Evaluator, &mut ModelState) {
        (&mut self.scores.evaluator, self.trainer.state())
    }

    /// Runs steps until the run ends. Returns the evaluation too, if the last step had one.
    fn train(&mut self) -> Result<End, EngineError> {
        let total = self.config.train.steps;
        let bar = self.options.progress.bar("training", total);
        let mut ended = (Outcome::Done, None);
        let resumed_at = self.trainer.steps_done();
        let owes_evaluation = std::mem::take(&mut self.owes_evaluation) && resumed_at < total;
        if owes_evaluation
            && self.evaluation_due(resumed_at)
            && let Some(end) = self.evaluate_on_the_way(resumed_at)?
        {
            return Ok(end);
        }
        self.trainer.restart_clock();
        while self.trainer.steps_done() < total {
            let step = self.step(&bar)?;
            // Finish all steps in flight, so that a checkpoint is of a whole step.
            if self.stops_here() && self.trainer.in_flight() == 0 {
                ended = (Outcome::Interrupted, None);
                break;
            }
            if step == total || self.trainer.in_flight() > 0 {
                continue;
            }
            // What is not saved is not scored: its score would name a checkpoint that is not there.
            let evaluates = self.evaluation_due(step) && self.divergence.is_sound();
            let per_epoch = self.batches_per_epoch();
            if evaluates || self.saver.is_due(&self.config.train, step, per_epoch) {
                bar.suspend(|| self.save_on_the_way())?;
            }
            if evaluates && let Some(end) = bar.suspend(|| self.evaluate_on_the_way(step))? {
                ended = end;
                break;
            }
        }
        bar.finish_and_clear();
        Ok(ended)
    }

    /// Runs the next step, records it, and returns its number.
    fn step(&mut self, bar: &indicatif::ProgressBar) -> Result<u64, EngineError> {
        self.options.team.set_doing(self.trainer.steps_done() + 1, "training");
        let was_to_stop = self.trainer.stop_after().is_some();
        let record = self.trainer.step(self.next_stop())?;
        let step = record.step;
        if let Some(lost) = self.options.team.group().lost() {
            // What the step has summed may be anything.
            return Err(EngineError::RankLost(lost.to_string()));
        }
        if !was_to_stop {
            self.say_who_stops();
        }
        self.divergence.record(&record);
        self.log_loss_scale(&record);
        self.totals.add(&record);
        self.journal.step(record);
        self.log(step, bar);
        bar.set_position(step);
        if self.divergence.is_lost() {
            return Err(self.diverged());
        }
        Ok(step)
    }

    /// Says that another rank was asked to stop; one that was asked itself has said so.
    fn say_who_stops(&mut self) {
        let is_asked = self.options.interrupted.load(Ordering::Relaxed);
        if let Some(last) = self.trainer.stop_after()
            && !is_asked
        {
            self.journal.say(&format!(
                "another rank was asked to stop: all stop after step {last} and a checkpoint"
            ));
        }
    }

    /// Saves, if the losses are finite. A file that cannot be written does not end the run: the
    /// last good checkpoint is still there, and the next one may succeed.
    fn save_on_the_way(&mut self) -> Result<(), EngineError> {
        if !self.options.team.is_first() {
            return Ok(());
        }
        let step = self.trainer.steps_done();
        if !self.divergence.is_sound() {
            tracing::info!(step, "saved nothing: the losses are non-finite");
            return Ok(());
        }
        match self.save() {
            Err(fault @ EngineError::Io { .. }) => {
                let fault = format!("warning: no checkpoint after step {step}: {fault}");
                self.journal.say(&format!("{fault}; training goes on"));
                Ok(())
            }
            saved => saved,
        }
    }

    /// Saves after the last step. What cannot be written is kept for [`Session::finish`], unless
    /// nothing is left to do before it.
    fn save_last(&mut self, outcome: Outcome) -> Result<(), EngineError> {
        if !self.options.team.is_first() {
            return Ok(());
        }
        let step = self.trainer.steps_done();
        let saved = self.save().map_err(|fault| match fault {
            EngineError::Io { .. } => {
                let last = self.last_checkpoint().unwrap_or("none".into());
                EngineError::Unsaved { step, last, fault: Box::new(fault) }
            }
            fault => fault,
        });
        if outcome == Outcome::Interrupted { saved } else { self.keep_fault(saved) }
    }

    fn last_checkpoint(&self) -> Option<String> {
        let last = checkpoint::last(self.options.run.path());
        last.ok().map(|path| path.display().to_string())
    }

    /// Says why an interrupted run resumes before the step that it has reached.
    fn say_unsaved(&mut self) {
        let (step, last) = (self.trainer.steps_done(), self.last_checkpoint().unwrap_or_default());
        self.journal.say(&format!(
            "warning: the losses are non-finite, so nothing is saved after step {step}; last good \
             checkpoint: {last}"
        ));
    }

    /// Keeps the first fault of a file, for [`Session::finish`]; passes on any other.
    fn keep_fault(&mut self, written: Result<(), EngineError>) -> Result<(), EngineError> {
        match written {
            Err(fault @ (EngineError::Io { .. } | EngineError::Unsaved { .. })) => {
                self.unwritten.get_or_insert(fault);
                Ok(())
            }
            written => written,
        }
    }

    /// Evaluates after `step`, whose checkpoint is saved. Returns how the run ends, if it does.
    fn evaluate_on_the_way(&mut self, step: u64) -> Result<Option<End>, EngineError> {
        let Some(scored) = self.evaluate(step)? else {
            return Ok(Some((Outcome::Interrupted, None)));
        };
        let outcome = if scored.verdict.is_target_reached {
            Outcome::TargetReached
        } else if scored.verdict.is_exhausted {
            Outcome::NoImprovement
        } else {
            self.report_on_the_way(Some(&scored.evaluation), State::Training);
            self.trainer.restart_clock();
            return Ok(None);
        };
        Ok(Some((outcome, Some(scored))))
    }

    /// Whether the run ends after the steps in flight: one process as soon as it is asked to,
    /// several after the step that they have agreed on.
    fn stops_here(&self) -> bool {
        match self.options.team.is_alone() {
            true => self.options.interrupted.load(Ordering::Relaxed),
            false => {
                self.trainer.stop_after().is_some_and(|last| self.trainer.steps_done() >= last)
            }
        }
    }

    fn batches_per_epoch(&self) -> u64 {
        self.trainer.batches_per_epoch()
    }

    /// The error of a run that is lost, with what a replay of the first bad step shows.
    fn diverged(&mut self) -> EngineError {
        let Some(record) = self.divergence.first().cloned() else {
            unreachable!("a lost run has a first bad step")
        };
        let (name, value) = bad_value(&record);
        if !self.options.team.is_first() {
            return EngineError::Diverged {
                step: record.step,
                name: name.to_string(),
                value,
                origin: String::new(),
                advice: "the first rank tells more".into(),
            };
        }
        self.report_on_the_way(None, State::Diverged);
        let run = self.options.run.path().display().to_string();
        let saved = self.last_checkpoint().unwrap_or("none was saved".into());
        let origin = if self.divergence.has_moved() {
            " (its gradients were finite, so the weights have changed and it cannot run again)"
                .into()
        } else {
            let replayed = self.replay(&record);
            replayed.unwrap_or_else(|fault| format!(" (its step could not be replayed: {fault})"))
        };
        EngineError::Diverged {
            step: record.step,
            name: name.to_string(),
            value,
            origin,
            advice: format!(
                "{}; run directory: {run}, last good checkpoint: {saved}",
                advice(&self.config)
            ),
        }
    }

    /// Saves the step of `record` and runs it again. Describes its images and where the fault is.
    fn replay(&mut self, record: &StepRecord) -> Result<String, EngineError> {
        while self.trainer.in_flight() > 0 {
            self.trainer.step(self.trainer.steps_done())?;
        }
        let replay = Replay::take(&mut self.trainer, &self.config, &self.data, record)?;
        let path = self.options.run.join(&format!("replay/step_{:08}.safetensors", record.step));
        replay.save(&path)?;
        let found = replay.run(&path, &self.options.backend)?;
        let first = match found.non_finite {
            Some(tensor) => format!("first non-finite: {tensor}"),
            None => "all values are finite when it runs again".into(),
        };
        let ids: Vec<String> = replay.image_ids.iter().map(u64::to_string).collect();
        let (ids, path) = (ids.join(", "), path.display());
        Ok(format!(" (images {ids}; {first}; look again: onegraph replay {path})"))
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
        let train = &self.config.train;
        // Not while nothing can be saved: the other ranks would run a step ahead up to the end.
        let saves_now = self.options.team.is_first()
            && self.divergence.is_sound()
            && self.saver.is_overdue(train);
        if self.stops_here() || saves_now {
            return now;
        }
        let epochs = |every: u64| self.batches_per_epoch().saturating_mul(every);
        let periods = [
            train.eval_every_steps,
            epochs(train.eval_every_epochs),
            train.checkpoint_every_steps,
            epochs(train.checkpoint_every_epochs),
        ];
        let next = |every: &u64| (now / every).saturating_add(1).saturating_mul(*every);
        let stops = periods.iter().filter(|every| **every > 0).map(next);
        let agreed = self.trainer.stop_after().unwrap_or(train.steps);
        stops.min().unwrap_or(train.steps).min(train.steps).min(agreed)
    }

    fn log(&mut self, step: u64, bar: &indicatif::ProgressBar) {
        let train = &self.config.train;
        if step == train.steps || due(train.log_every_steps, step) {
            let memory = self.trainer.memory();
            bar.suspend(|| self.journal.log(train.steps, memory.bytes()));
        }
    }

    fn evaluation_due(&self, step: u64) -> bool {
        let train = &self.config.train;
        let per_epochs = self.batches_per_epoch().saturating_mul(train.eval_every_epochs);
        due(train.eval_every_steps, step) || due(per_epochs, step)
    }

    /// Evaluates after `step`, with all ranks, and records the scores; `None` if a signal
    /// interrupted it. Only the first rank has the scores, but all have the verdict.
    fn evaluate(&mut self, step: u64) -> Result<Option<Scored>, EngineError> {
        let SessionOptions { run, progress, team, .. } = &self.options;
        team.set_doing(step, "evaluating");
        tracing::info!(step, "evaluates");
        let started = Instant::now();
        let state = self.trainer.state();
        let found = self.scores.evaluator.detect_in_ranks(state, team, progress);
        let found = uninterrupted(found)?;
        let mut evaluation = Evaluation::none();
        let verdict = team.share("the verdict of an evaluation", || {
            let Some(found) = found else { return Ok(None) };
            let scored = self.scores.score(step, &found, started, &mut self.journal);
            let Some(scored) = uninterrupted(scored)? else { return Ok(None) };
            evaluation = scored;
            if let Err(fault) = self.best.record(step, &evaluation, run) {
                self.journal.say(&format!("warning: {fault}; training goes on"));
            }
            Ok(Some(Verdict {
                is_target_reached: targets_reached(&self.config.train, &evaluation),
                is_exhausted: self.best.is_exhausted(),
            }))
        })?;
        self.trainer.restart_clock();
        Ok(verdict.map(|verdict| Scored { evaluation, verdict }))
    }

    fn save(&mut self) -> Result<(), EngineError> {
        self.options.team.set_doing(self.trainer.steps_done(), "saving");
        let (run, train) = (&self.options.run, &self.config.train);
        let Some(saved) = self.saver.save(&mut self.trainer, run, train, &self.best)? else {
            return Ok(());
        };
        let (step, hash) = (self.trainer.steps_done(), saved.weights_sha256);
        let folder = checkpoint::folder(step);
        self.journal.say(&format!("step {step}: saved {folder}  weights {}", &hash[..HASH_DIGITS]));
        Ok(())
    }

    /// Writes the report; `evaluation` is that of the last step, if it has one.
    fn report(&mut self, evaluation: Option<&Evaluation>, state: State) -> Result<(), EngineError> {
        if !self.options.team.is_first() {
            return Ok(());
        }
        let facts = Facts {
            state,
            steps_done: self.trainer.steps_done(),
            device: self.options.backend.name(),
            config: &self.config,
            config_toml: self.saver.config_toml(),
            data: (&self.data, self.saver.data_identity()),
            evaluator: &self.scores.evaluator,
        };
        self.report.write(&self.options.run, &self.totals, &facts, evaluation)
    }

    /// Writes the report of a run that goes on, or whose end is told elsewhere: whatever keeps the
    /// report from being written is a warning.
    fn report_on_the_way(&mut self, evaluation: Option<&Evaluation>, state: State) {
        if let Err(fault) = self.report(evaluation, state) {
            self.journal.say(&format!("warning: no report: {fault}"));
        }
    }
}

/// This rank's part of each step.
///
/// # Errors
/// Ranks that cannot share a batch.
fn division(config: &Config, options: &SessionOptions) -> Result<Division, EngineError> {
    let (team, target) = (&options.team, options.backend.target());
    let mut division = Division::new(&config.train, &target, team.ranks(), team.exchange())?;
    division.local_ranks = team.local_ranks();
    Ok(division)
}

/// `None` for what was interrupted.
fn uninterrupted<T>(result: Result<T, EngineError>) -> Result<Option<T>, EngineError> {
    match result {
        Err(EngineError::Interrupted) => Ok(None),
        result => result.map(Some),
    }
}

fn check_categories(train: &DataSet, val: &DataSet) -> Result<(), EngineError> {
    if train.categories() == val.categories() {
        return Ok(());
    }
    Err(EngineError::Usage(format!(
        "{} and {} name different classes: set data.val_store, or data.val_images and \
         data.val_annotations, to data with the categories of the training data",
        train.store.path().display(),
        val.store.path().display()
    )))
}
