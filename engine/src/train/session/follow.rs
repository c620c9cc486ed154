//! What follows a step: a checkpoint, an evaluation, a report. The device is waited for; files and
//! scores are made on other threads while training goes on.
//!
//! A checkpoint is written only once the evaluation before it is recorded, which may name the
//! checkpoints to keep. The verdict of an evaluation comes some steps late. If it ends the run, the
//! state goes back to that of the evaluated step, and the later steps are forgotten.

use std::sync::Arc;
use std::time::Instant;

use graph::StateSet;
use serde::{Deserialize, Serialize};

use super::{End, Session};
use crate::checkpoint;
use crate::error::EngineError;
use crate::evaluate::{Evaluation, Gathered};
use crate::model::is_transient;
use crate::runtime::Backend;
use crate::train::background::Background;
use crate::train::divergence::Divergence;
use crate::train::observer::Event;
use crate::train::options::{Outcome, SessionOptions};
use crate::train::report::State;
use crate::train::saver::{Saver, Written};
use crate::train::scores::{Scores, Wait, targets_reached};

/// Digits of a checkpoint's hash in the log: enough to tell runs apart.
const HASH_DIGITS: usize = 16;

/// An evaluation whose scores are being made; the first rank makes them.
#[derive(Debug)]
pub(super) struct Evaluating {
    step: u64,
    /// The state after that step, if the run goes on.
    state: Option<Arc<StateSet>>,
    started: Instant,
    waited_seconds: f64,
    scoring: Option<Background<Result<Scores, EngineError>>>,
    /// Once it is recorded.
    recorded: Option<(Evaluation, Verdict)>,
}

/// An evaluation that all ranks know the verdict of.
#[derive(Debug)]
pub(super) struct Evaluated {
    step: u64,
    state: Option<Arc<StateSet>>,
    /// On the first rank.
    pub(super) evaluation: Evaluation,
    pub(super) verdict: Verdict,
}

/// What an evaluation means for the run, on every rank.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Verdict {
    pub(super) is_target_reached: bool,
    /// `train.patience` is at its end.
    is_exhausted: bool,
}

impl Verdict {
    /// How it ends the run, if it does.
    fn outcome(self) -> Option<Outcome> {
        match self {
            Self { is_target_reached: true, .. } => Some(Outcome::TargetReached),
            Self { is_exhausted: true, .. } => Some(Outcome::NoImprovement),
            _ => None,
        }
    }
}

impl Session {
    /// Whether the config asks for a checkpoint after `step`.
    pub(super) fn save_is_due(&self, step: u64) -> bool {
        let (train, per_epoch) = (&self.config.train, self.batches_per_epoch());
        Saver::is_due(train, step, per_epoch) || self.save_is_overdue()
    }

    /// Whether it is time for a checkpoint by the clock. Not while nothing can be saved: the other
    /// ranks would run a step ahead up to the end.
    pub(super) fn save_is_overdue(&self) -> bool {
        self.options.team.is_first()
            && self.divergence.is_sound()
            && self.evaluating.as_ref().is_none_or(|evaluating| evaluating.recorded.is_some())
            && !self.ends_late()
            && self.saver.is_overdue(&self.config.train)
    }

    /// Whether a verdict is known that ends the run.
    pub(super) fn ends_late(&self) -> bool {
        let recorded = self.evaluating.as_ref().and_then(|evaluating| evaluating.recorded.as_ref());
        recorded.is_some_and(|(_, verdict)| verdict.outcome().is_some())
    }

    /// Begins what follows a step: a checkpoint, and an evaluation if `evaluates`. Returns how the
    /// run ends, if it does.
    pub(super) fn follow(&mut self, evaluates: bool) -> Result<Option<End>, EngineError> {
        let started = Instant::now();
        if evaluates && let Some(end) = self.settled()? {
            return Ok(Some(end));
        }
        let state = self.begin_save()?;
        if evaluates { self.evaluate(state, started) } else { Ok(None) }
    }

    /// Evaluates after the step that the run was resumed at, whose checkpoint it came from. Returns
    /// how the run ends, if it does.
    pub(super) fn evaluate_again(&mut self) -> Result<Option<End>, EngineError> {
        let started = Instant::now();
        let state = match self.options.team.is_first() {
            true => Some(self.copy_of_state()?),
            false => None,
        };
        self.evaluate(state, started)
    }

    fn evaluate(
        &mut self,
        state: Option<Arc<StateSet>>,
        started: Instant,
    ) -> Result<Option<End>, EngineError> {
        if !self.begin_evaluation(state, started)? {
            return Ok(Some((Outcome::Interrupted, None)));
        }
        if self.config.eval.overlap { Ok(None) } else { self.settled() }
    }

    /// Begins to save the state after the last step, if the losses are finite, and returns it. A
    /// file that cannot be written does not end the run: the last good checkpoint is still there,
    /// and the next one may succeed.
    fn begin_save(&mut self) -> Result<Option<Arc<StateSet>>, EngineError> {
        if !self.options.team.is_first() {
            return Ok(None);
        }
        let step = self.trainer.steps_done();
        self.finish_scores()?;
        if self.ends_late() {
            return Ok(None);
        }
        if !self.divergence.is_sound() {
            tracing::info!(step, "saved nothing: the losses are non-finite");
            return Ok(None);
        }
        self.finish_save()?;
        self.options.team.set_doing(step, "saving");
        let state = self.copy_of_state()?;
        if !self.saver.has_saved(step) {
            let keep = (self.config.train.keep_checkpoints, self.best.kept_steps());
            self.saver.begin(step, state.clone(), &self.options.run, keep)?;
        }
        if !self.config.eval.overlap {
            self.finish_save()?;
        }
        self.trainer.restart_clock();
        Ok(Some(state))
    }

    /// Saves the state after the last step, and waits for it.
    ///
    /// # Errors
    /// Files that cannot be written.
    pub(super) fn save(&mut self) -> Result<(), EngineError> {
        self.finish_save()?;
        let step = self.trainer.steps_done();
        if self.saver.has_saved(step) {
            return Ok(());
        }
        self.options.team.set_doing(step, "saving");
        let state = self.copy_of_state()?;
        let keep = (self.config.train.keep_checkpoints, self.best.kept_steps());
        self.saver.begin(step, state, &self.options.run, keep)?;
        match self.saver.finish() {
            Some((_, Err(fault))) => Err(fault),
            Some(written) => self.say_saved(written),
            None => Ok(()),
        }
    }

    /// What lives across steps, for a checkpoint or to go back to.
    fn copy_of_state(&mut self) -> Result<Arc<StateSet>, EngineError> {
        Ok(Arc::new(self.trainer.state().fetch()?.without(is_transient)))
    }

    /// Waits for the checkpoint that is being written, if there is one.
    fn finish_save(&mut self) -> Result<(), EngineError> {
        self.saver.finish().map_or(Ok(()), |written| self.say_saved(written))
    }

    /// Says how writing a checkpoint went.
    fn say_saved(&mut self, (step, saved): Written) -> Result<(), EngineError> {
        match saved {
            Ok(saved) => {
                let (folder, hash) = (checkpoint::folder(step), saved.weights_sha256);
                let hash = &hash[..HASH_DIGITS];
                self.journal.say(&format!("step {step}: saved {folder}  weights {hash}"));
            }
            Err(fault @ EngineError::Io { .. }) => {
                let fault = format!("warning: no checkpoint after step {step}: {fault}");
                self.journal.say(&format!("{fault}; training goes on"));
            }
            Err(fault) => return Err(fault),
        }
        Ok(())
    }

    /// Detects after the last step, with all ranks, and begins to score. If the run goes on,
    /// `state` is that of the step; it has waited since `started`. Returns false if a signal
    /// interrupted it.
    pub(super) fn begin_evaluation(
        &mut self,
        state: Option<Arc<StateSet>>,
        started: Instant,
    ) -> Result<bool, EngineError> {
        assert!(self.evaluating.is_none(), "an evaluation is under way");
        let step = self.trainer.steps_done();
        let epoch = step.div_ceil(self.batches_per_epoch());
        self.options.observe(Event::DetectionBegins(epoch))?;
        let SessionOptions { progress, team, .. } = &self.options;
        team.set_doing(step, "evaluating");
        tracing::info!(step, "evaluates");
        let found = self.evaluator.detect_in_ranks(self.trainer.state(), team, progress);
        let found = uninterrupted(found)?;
        let is_whole = team.share("whether all have detected", || Ok(found.is_some()))?;
        let (Some(found), true) = (found, is_whole) else { return Ok(false) };
        self.options.observe(Event::DetectionEnds(epoch))?;
        let scoring = match team.is_first() {
            true => Some(self.begin_scores(step, found, started)?),
            false => None,
        };
        let waited_seconds = started.elapsed().as_secs_f64();
        self.evaluating =
            Some(Evaluating { step, state, started, waited_seconds, scoring, recorded: None });
        self.trainer.restart_clock();
        Ok(true)
    }

    /// Begins to score what was found after `step`.
    fn begin_scores(
        &self,
        step: u64,
        found: Gathered,
        started: Instant,
    ) -> Result<Background<Result<Scores, EngineError>>, EngineError> {
        let (set, draw_images) = (self.evaluator.set().clone(), self.config.eval.draw_images);
        Background::start("scores", move || Scores::new(&set, found, step, started, draw_images))
    }

    /// Records what other threads have finished since the last step, without waiting for them.
    pub(super) fn look_after_threads(&mut self) -> Result<(), EngineError> {
        if self.saver.is_ready() {
            self.finish_save()?;
        }
        let scoring = self.evaluating.as_ref().and_then(|evaluating| evaluating.scoring.as_ref());
        if scoring.is_some_and(Background::is_ready) {
            self.finish_scores()?;
        }
        if self.report.is_ready() {
            self.report.finish(&mut self.journal);
        }
        Ok(())
    }

    /// Waits for the scores that are being made, if there are any, and records them; after their
    /// checkpoint, which they name.
    fn finish_scores(&mut self) -> Result<(), EngineError> {
        let evaluating = self.evaluating.as_mut();
        let Some(thread) = evaluating.and_then(|evaluating| evaluating.scoring.take()) else {
            return Ok(());
        };
        self.finish_save()?;
        let scored = thread.join()?;
        let Some(evaluating) = &mut self.evaluating else { return Ok(()) };
        let step = evaluating.step;
        let seconds = match self.config.eval.overlap && evaluating.state.is_some() {
            true => evaluating.waited_seconds,
            false => evaluating.started.elapsed().as_secs_f64(),
        };
        let images = self.evaluator.set().images().len();
        let ranks = self.options.team.ranks().count;
        let is_device = matches!(self.options.backend, Backend::Device(_));
        let waited = Wait::new(seconds, images, ranks, is_device);
        scored.record(step, waited, &mut self.journal);
        let Scores { evaluation, report, .. } = scored;
        self.report.show(report);
        if let Err(fault) = self.best.record(step, &evaluation, &self.options.run) {
            self.journal.say(&format!("warning: {fault}; training goes on"));
        }
        let verdict = Verdict {
            is_target_reached: targets_reached(&self.config.train, &evaluation),
            is_exhausted: self.best.is_exhausted(),
        };
        let epoch = step.div_ceil(self.trainer.batches_per_epoch());
        let waited_seconds = waited.seconds;
        let scored = Event::Scored { epoch, evaluation: &evaluation, waited_seconds };
        self.options.observe(scored)?;
        if let Some(outcome) = verdict.outcome() {
            self.options
                .observe(Event::Decided { is_target_reached: outcome == Outcome::TargetReached })?;
            self.is_decided = true;
            self.trainer.ask_to_stop();
        }
        let goes_on = evaluating.state.is_some() && verdict.outcome().is_none();
        evaluating.recorded = Some((evaluation, verdict));
        if goes_on { self.begin_report(State::Training) } else { Ok(()) }
    }

    /// Waits for the evaluation that is under way, if there is one, and gives all ranks its
    /// verdict. All ranks call this after the same step.
    pub(super) fn settle(&mut self) -> Result<Option<Evaluated>, EngineError> {
        self.finish_scores()?;
        let Some(Evaluating { step, state, recorded, .. }) = self.evaluating.take() else {
            return Ok(None);
        };
        let (evaluation, verdict) = recorded.unzip();
        let verdict = self.options.team.share("the verdict of an evaluation", || {
            verdict.ok_or_else(|| unreachable!("the first rank has recorded it"))
        })?;
        let evaluation = evaluation.unwrap_or_else(Evaluation::none);
        Ok(Some(Evaluated { step, state, evaluation, verdict }))
    }

    /// Like [`Self::settle`]; returns how the run ends, if the verdict ends it. The state is then
    /// that of the evaluated step.
    pub(super) fn settled(&mut self) -> Result<Option<End>, EngineError> {
        let Some(evaluated) = self.settle()? else { return Ok(None) };
        let Some(outcome) = evaluated.verdict.outcome() else {
            self.trainer.restart_clock();
            return Ok(None);
        };
        self.go_back(evaluated.step, evaluated.state.as_deref())?;
        Ok(Some((outcome, Some(evaluated))))
    }

    /// Forgets the steps after `step`, after which the state was `state`.
    fn go_back(&mut self, step: u64, state: Option<&StateSet>) -> Result<(), EngineError> {
        while self.trainer.in_flight() > 0 {
            self.trainer.step(self.trainer.steps_done())?;
        }
        let later = self.trainer.steps_done() - step;
        if later == 0 {
            return Ok(());
        }
        if let Some(state) = state {
            self.trainer.state().change(|now| {
                state.iter().for_each(|(name, tensor)| now.insert(name, tensor.clone()));
                Ok(())
            })?;
            self.journal.forget_after(step);
            let steps = crate::progress::counted(later as usize, "step");
            self.journal.say(&format!(
                "step {step} ends the run; {steps} trained while it was scored are dropped"
            ));
        }
        self.trainer.resume_at(step);
        self.divergence = Divergence::new(&self.config);
        Ok(())
    }

    /// Tells the observer how the run ends, unless it knows.
    pub(super) fn decided(&mut self, is_target_reached: bool) -> Result<(), EngineError> {
        if std::mem::replace(&mut self.is_decided, true) {
            return Ok(());
        }
        self.options.observe(Event::Decided { is_target_reached })
    }

    /// Writes the report, and waits for it.
    pub(super) fn write_report(&mut self, state: State) -> Result<(), EngineError> {
        self.report.write(state, self.trainer.steps_done(), &mut self.journal)
    }

    /// Begins to write the report of a run that goes on, or whose end is told elsewhere.
    pub(super) fn begin_report(&mut self, state: State) -> Result<(), EngineError> {
        self.report.begin(state, self.trainer.steps_done(), &mut self.journal)?;
        if !self.config.eval.overlap {
            self.report.finish(&mut self.journal);
        }
        Ok(())
    }

    /// Lets other threads finish what they have in hand, before the session ends with a fault.
    /// What goes wrong here is less useful than that fault.
    pub(super) fn wind_up(&mut self) {
        if let Err(fault) = self.finish_scores().and_then(|()| self.finish_save()) {
            tracing::info!(%fault, "not recorded");
        }
        self.report.finish(&mut self.journal);
    }
}

/// `None` for what was interrupted.
fn uninterrupted<T>(result: Result<T, EngineError>) -> Result<Option<T>, EngineError> {
    match result {
        Err(EngineError::Interrupted) => Ok(None),
        result => result.map(Some),
    }
}
