//! A run: its steps, and the actions after each step.

mod ending;
mod evaluation;
mod open;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::config::Config;
use graph::StateSet;
use ranks::RanksError;

use super::after_step::{AfterStep, Run, due};
use super::banner::banner;
use super::best::Best;
use super::checkpoints::{Checkpoints, GoodState};
use super::divergence::Divergence;
use super::journal::Journal;
use super::observer::Event;
use super::options::{Outcome, SessionOptions};
use super::periods::Periods;
use super::report::{Report, State};
use super::resume::Recorded;
use super::trainer::Trainer;
use super::usage::{Usage, seconds_since_start};
use super::validation::ValidationLoss;
use super::verdict::{EvaluationOutcome, Phase};
use crate::dataset::DataSet;
use crate::error::EngineError;
use crate::evaluate::{Evaluation, EvaluationSet, Evaluator, ImageDetections};
use crate::progress::Progress;
use crate::run_dir::RunDir;
use crate::runtime::ModelState;
use crate::weights::are_scored;

/// A training run.
///
/// Everything that can end a run is called explicitly in `after_step`, not through a list of hooks,
/// as each call depends on the previous one.
#[derive(Debug)]
pub struct Session {
    config: Config,
    options: SessionOptions,
    data: DataSet,
    trainer: Trainer,
    /// `None` without validation data.
    evaluator: Option<Evaluator>,
    /// `None` without `eval.loss`.
    validation: Option<ValidationLoss>,
    periods: Periods,
    divergence: Divergence,
    checkpoints: Checkpoints,
    /// State of the evaluation that overlaps with training.
    phase: Phase,
    best: Best,
    /// Observers that run after each step.
    parts: Vec<Box<dyn AfterStep>>,
    journal: Journal,
    usage: Usage,
    report: Report,
    /// The record of the step after which the run resumed.
    recorded: Option<Recorded>,
    /// Error of the first output file that could not be written.
    unwritten: Option<EngineError>,
}

/// How a run ends.
#[derive(Debug)]
enum End {
    /// All steps are done; the last one is not evaluated yet.
    Steps,
    /// By a signal.
    Interrupted,
    /// By the result of an evaluation; the state after the evaluated step is restored.
    Verdict(Outcome, EvaluationOutcome),
}

impl Session {
    /// Trains to the end, evaluates, and writes `report.json`. Scores are returned even if files
    /// cannot be written, for example on a full disk; [`Session::finish`] then returns the error.
    ///
    /// # Errors
    /// Data that cannot be read; non-finite losses; an interrupted run that cannot be saved.
    pub fn run(&mut self) -> Result<(Outcome, Evaluation), EngineError> {
        let options = &self.options;
        let (backend, run) = (&options.backend, &options.run);
        for text in banner(&self.config, &self.data, &self.trainer, backend, run, &options.team) {
            self.journal.say(&text);
        }
        if self.trainer.steps_done() >= self.config.train.steps {
            self.journal.say("all steps are done: to continue, raise train.steps or train.epochs");
        }
        self.begin_report(State::Training)?;
        let ended = self.train().and_then(|end| self.conclude(end));
        if ended.is_err() {
            self.wind_up();
        }
        ended
    }

    /// The run directory, locked by this session.
    pub fn run_dir(&self) -> &RunDir {
        &self.options.run
    }

    /// Prints and logs a warning.
    pub fn warn(&mut self, text: &str) {
        self.journal.say(&format!("warning: {text}"));
    }

    /// Ends the session.
    ///
    /// # Errors
    /// [`EngineError::Unsaved`] or [`EngineError::Io`] for the first file that could not be written
    /// at the end.
    pub fn finish(self) -> Result<(), EngineError> {
        self.unwritten.map_or(Ok(()), Err)
    }

    /// The trained state.
    pub fn state(&mut self) -> &mut ModelState {
        self.trainer.state()
    }

    /// The validation set, if there is any.
    pub fn evaluation_set(&self) -> Option<Arc<EvaluationSet>> {
        self.evaluator.as_ref().map(|of| of.set().clone())
    }

    /// Detections in validation images, given by position, with the weights that are scored; empty
    /// without validation data.
    ///
    /// # Errors
    /// As for [`Evaluator::detect`].
    pub fn detect(&mut self, images: &[usize]) -> Result<Vec<ImageDetections>, EngineError> {
        let Some(evaluator) = &mut self.evaluator else { return Ok(vec![]) };
        let (state, averages) = (self.trainer.state(), are_scored(&self.config));
        state.with_averages(averages, |state| evaluator.detect(state, images, &Progress::quiet()))
    }

    /// Runs steps until the run ends.
    fn train(&mut self) -> Result<End, EngineError> {
        let total = self.config.train.steps;
        let bar = self.options.progress.bar("training", total);
        let mut end = match self.scores_start() {
            true => self.save_and_evaluate(true)?,
            false => self.evaluate_first()?,
        };
        self.trainer.restart_clock();
        while end.is_none() && self.trainer.steps_done() < total {
            self.step(&bar)?;
            end = self.after_step(&bar)?;
        }
        bar.finish_and_clear();
        // A pending evaluation of an earlier step may end the run at that step.
        Ok(self.end_by_verdict()?.or(end).unwrap_or(End::Steps))
    }

    /// True if the run's initial weights are scored.
    fn scores_start(&self) -> bool {
        self.config.train.eval_at_start && self.recorded.is_none() && self.evaluator.is_some()
    }

    /// Runs the next step and records it.
    fn step(&mut self, bar: &indicatif::ProgressBar) -> Result<(), EngineError> {
        let (done, steps_per_epoch) = (self.trainer.steps_done(), self.trainer.batches_per_epoch());
        self.options.team.set_doing(done + 1, "training");
        let epoch = done / steps_per_epoch + 1;
        if done % steps_per_epoch == 0 {
            self.options.observe(Event::EpochBegins(epoch))?;
        }
        let was_to_stop = self.trainer.stop_after().is_some();
        let mut record = self.trainer.step(self.next_stop())?;
        let step = record.step;
        let train = &self.config.train;
        let is_logged = step == train.steps || due(train.log_every_steps, step);
        if is_logged {
            let ready = self.trainer.batches_ready();
            record.system = self.usage.sample(ready, &self.options.backend);
        }
        if self.report.totals.is_empty()
            && let Some(seconds) = seconds_since_start()
        {
            record.system.push(("first_step_seconds", seconds));
            self.journal.say(&format!("first step {seconds:.1} s after the start of the command"));
        }
        if let Some(lost) = self.options.team.group().lost() {
            // A rank is lost, so the step may have all-reduced invalid values.
            return Err(RanksError::Lost(Box::new(lost)).into());
        }
        if !was_to_stop {
            self.say_who_stops();
        }
        self.divergence.record(&record);
        self.report.totals.add(&record);
        self.journal.step(record.clone());
        let (options, trainer, journal) = (&self.options, &mut self.trainer, &mut self.journal);
        let mut run = Run { options, trainer, journal };
        self.parts.iter_mut().try_for_each(|part| part.after(&record, &mut run))?;
        if is_logged {
            let train = &self.config.train;
            let memory = self.trainer.memory();
            bar.suspend(|| self.journal.log(train.steps, memory.bytes()));
            if self.report.is_due() {
                self.report.begin(State::Training, step, &mut self.journal)?;
            }
        }
        bar.set_position(step);
        if step % steps_per_epoch == 0 {
            self.options.observe(Event::EpochEnds(epoch))?;
        }
        Ok(())
    }

    /// The actions after a step: records results of background threads, ends a run that cannot
    /// recover, and, if no step is in flight, stops, saves a checkpoint or evaluates. Returns the
    /// end of the run, if it ends.
    fn after_step(&mut self, bar: &indicatif::ProgressBar) -> Result<Option<End>, EngineError> {
        self.look_after_threads()?;
        if self.divergence.is_lost() {
            // A pending evaluation of an earlier step may end the run instead.
            return self.end_by_verdict()?.map(Some).ok_or_else(|| self.diverged());
        }
        let step = self.trainer.steps_done();
        // Checkpoints and evaluations wait until no step is in flight.
        if self.trainer.in_flight() > 0 {
            return Ok(None);
        }
        if self.stops_here() {
            return Ok(Some(End::Interrupted));
        }
        // A state that cannot be saved is not scored, as its score would refer to a missing
        // checkpoint.
        let evaluates = self.periods.evaluates(step) && self.divergence.is_sound();
        let saves = evaluates || self.periods.saves(step) || self.save_is_overdue();
        if step == self.config.train.steps || !saves {
            return Ok(None);
        }
        bar.suspend(|| self.save_and_evaluate(evaluates))
    }

    /// Records results of background threads that are ready, without waiting.
    fn look_after_threads(&mut self) -> Result<(), EngineError> {
        if self.checkpoints.is_ready() {
            self.checkpoints.finish(&mut self.journal)?;
        }
        if self.phase.is_ready() {
            self.record_scores()?;
        }
        if self.report.is_ready() {
            self.report.finish(&mut self.journal);
        }
        Ok(())
    }

    /// Starts a checkpoint, and an evaluation if `evaluates`. Returns the end of the run, if it
    /// ends.
    fn save_and_evaluate(&mut self, evaluates: bool) -> Result<Option<End>, EngineError> {
        let started = Instant::now();
        if evaluates && let Some(end) = self.end_by_verdict()? {
            return Ok(Some(end));
        }
        let state = match self.options.team.is_first() {
            true => self.save_on_the_way()?,
            false => None,
        };
        if evaluates { self.evaluate(state, started) } else { Ok(None) }
    }

    /// Starts saving the state after the last step done, in a run that continues. Returns the
    /// state, if it may be saved.
    fn save_on_the_way(&mut self) -> Result<Option<Arc<StateSet>>, EngineError> {
        self.record_scores()?;
        let good = self.begin_save()?;
        if !self.config.eval.overlap {
            self.checkpoints.finish(&mut self.journal)?;
        }
        self.trainer.restart_clock();
        Ok(good.map(GoodState::into_state))
    }

    /// Waits for the previous checkpoint, and starts saving the state after the last step, if it
    /// may be saved.
    fn begin_save(&mut self) -> Result<Option<GoodState>, EngineError> {
        self.checkpoints.finish(&mut self.journal)?;
        self.options.team.set_doing(self.trainer.steps_done(), "saving");
        let good = GoodState::of(&mut self.trainer, &self.divergence, &self.phase)?;
        if let Some(good) = &good {
            self.checkpoints.begin(good, &self.best)?;
        }
        Ok(good)
    }

    /// True if a checkpoint is due by time. False while the state cannot be saved: the checkpoint
    /// would stay due, and steps would no longer overlap.
    fn save_is_overdue(&self) -> bool {
        self.options.team.is_first()
            && GoodState::exists(&self.divergence, &self.phase)
            && self.checkpoints.is_overdue()
    }

    /// Prints that another rank was requested to stop. A rank that received the request has already
    /// printed it.
    fn say_who_stops(&mut self) {
        if let Some(last) = self.trainer.stop_after()
            && !self.is_asked_to_stop()
        {
            self.journal.say(&format!(
                "another rank was asked to stop: all ranks stop once step {last} is saved"
            ));
        }
    }

    /// True if a signal or the result of an evaluation requests this rank to stop.
    fn is_asked_to_stop(&self) -> bool {
        self.options.interrupted.load(Ordering::Relaxed) || self.phase.ends_run()
    }

    /// True if the run stops after the steps in flight. A single process stops when requested;
    /// several processes stop after the step on which they have agreed.
    fn stops_here(&self) -> bool {
        match self.options.team.is_alone() {
            true => self.is_asked_to_stop(),
            false => {
                self.trainer.stop_after().is_some_and(|last| self.trainer.steps_done() >= last)
            }
        }
    }

    /// The next step after which an action requires that no step is in flight.
    fn next_stop(&self) -> u64 {
        let (now, last) = (self.trainer.steps_done(), self.config.train.steps);
        if self.stops_here() || self.save_is_overdue() {
            return now;
        }
        let parts = self.parts.iter().map(|part| part.next(now));
        let stops = parts.chain([self.periods.next(now), self.trainer.stop_after()]);
        stops.flatten().fold(last, u64::min)
    }

    /// Starts writing the report in the background; waits for it if evaluations do not overlap with
    /// training.
    fn begin_report(&mut self, state: State) -> Result<(), EngineError> {
        self.report.begin(state, self.trainer.steps_done(), &mut self.journal)?;
        if !self.config.eval.overlap {
            self.report.finish(&mut self.journal);
        }
        Ok(())
    }

    /// Waits for background threads before the session ends with an error. Their errors are only
    /// logged, as the first error is more useful.
    fn wind_up(&mut self) {
        let recorded = self.record_scores();
        if let Err(fault) = recorded.and_then(|()| self.checkpoints.finish(&mut self.journal)) {
            tracing::info!(%fault, "not recorded");
        }
        self.report.finish(&mut self.journal);
    }
}
