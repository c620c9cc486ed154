//! Evaluations: detection, scoring while training continues, and results that end a run.
//!
//! A checkpoint is only written after the previous evaluation is recorded, as that may change the
//! checkpoints to keep. The result of an evaluation arrives some steps late; if it ends the run,
//! the state after the evaluated step is restored, and later steps are discarded.

use std::sync::Arc;
use std::time::Instant;

use graph::StateSet;

use super::{End, Session};
use crate::error::EngineError;
use crate::evaluate::Evaluation;
use crate::progress::counted;
use crate::runtime::Backend;
use crate::team::Team;
use crate::train::background::Background;
use crate::train::checkpoints::copy_of_state;
use crate::train::divergence::Divergence;
use crate::train::observer::Event;
use crate::train::options::{Outcome, SessionOptions};
use crate::train::report::State;
use crate::train::resume::Recorded;
use crate::train::scores::{Scores, Wait};
use crate::train::verdict::{EvaluationOutcome, Phase, Scoring, Verdict};
use crate::weights::are_scored;

impl Session {
    /// Evaluates the checkpoint from which the run resumes, if it was not evaluated or its
    /// evaluation ended the run. Returns how the run ends, if the result ends it.
    pub(super) fn evaluate_first(&mut self) -> Result<Option<End>, EngineError> {
        let step = self.trainer.steps_done();
        if step >= self.config.train.steps {
            return Ok(None);
        }
        match self.recorded {
            Some(Recorded::Nothing) if self.periods.evaluates(step) => self.evaluate_again(),
            None | Some(Recorded::Nothing | Recorded::Evaluation) => Ok(None),
            Some(Recorded::Ending) => {
                self.journal.say(&format!(
                    "step {step} ended the run and is evaluated again: to continue training, give \
                     higher targets (--target) or a larger train.patience"
                ));
                let end = self.evaluate_again()?;
                if end.is_some() { Ok(end) } else { self.end_by_verdict() }
            }
        }
    }

    /// Evaluates the step after which the run resumes.
    fn evaluate_again(&mut self) -> Result<Option<End>, EngineError> {
        let started = Instant::now();
        let state = match self.options.team.is_first() {
            true => Some(copy_of_state(&mut self.trainer)?),
            false => None,
        };
        self.evaluate(state, started)
    }

    /// Evaluates the last step done, in a run that continues. Returns the end of the run, if
    /// already known.
    pub(super) fn evaluate(
        &mut self,
        state: Option<Arc<StateSet>>,
        started: Instant,
    ) -> Result<Option<End>, EngineError> {
        if !self.begin_evaluation(state, started)? {
            return Ok(Some(End::Interrupted));
        }
        if self.config.eval.overlap { Ok(None) } else { self.end_by_verdict() }
    }

    /// Runs detection after the last step on all ranks, and starts scoring. `state` is the state
    /// after the step, if the run continues; `started` is when training began to wait. Returns
    /// false if a signal interrupted it.
    pub(super) fn begin_evaluation(
        &mut self,
        state: Option<Arc<StateSet>>,
        started: Instant,
    ) -> Result<bool, EngineError> {
        assert!(matches!(self.phase, Phase::Idle), "an evaluation is under way");
        let step = self.trainer.steps_done();
        let epoch = step.div_ceil(self.trainer.batches_per_epoch());
        self.options.observe(Event::DetectionBegins(epoch))?;
        let SessionOptions { progress, team, .. } = &self.options;
        team.set_doing(step, "evaluating");
        tracing::info!(step, "evaluates");
        let Some(evaluator) = &mut self.evaluator else { unreachable!("there is validation data") };
        let (validation, interrupted) = (&mut self.validation, &self.options.interrupted);
        let averages = are_scored(&self.config);
        let found = self.trainer.state().with_averages(averages, |state| {
            let found = of_all(
                team,
                "whether all have detected",
                evaluator.detect_in_ranks(state, team, progress),
            )?;
            let Some(found) = found else { return Ok(None) };
            let losses = match validation {
                Some(validation) => of_all(
                    team,
                    "whether all have the losses",
                    validation.run(state, team, interrupted),
                )?,
                None => Some(vec![]),
            };
            Ok(losses.map(|losses| (found, losses)))
        });
        let Some((found, losses)) = found? else { return Ok(false) };
        self.options.observe(Event::DetectionEnds(epoch))?;
        self.phase = Phase::Elsewhere { step };
        if team.is_first() {
            let (set, most) = (evaluator.set().clone(), self.config.eval.draw_images);
            let score = move || Scores::new(&set, (found, losses), step, started, most);
            let scores = Background::start("scores", score)?;
            let waited_seconds = started.elapsed().as_secs_f64();
            self.phase = Phase::Scoring(Scoring { step, state, started, waited_seconds, scores });
        }
        self.trainer.restart_clock();
        Ok(true)
    }

    /// Waits for the scores being computed, if any, and records them. First waits for their
    /// checkpoint, as the record refers to it.
    pub(super) fn record_scores(&mut self) -> Result<(), EngineError> {
        let Some(scoring) = self.phase.take_scoring() else { return Ok(()) };
        self.checkpoints.finish(&mut self.journal)?;
        let Scoring { step, state, started, waited_seconds, scores } = scoring;
        let scores = scores.join()?;
        let wait = self.wait(match self.config.eval.overlap && state.is_some() {
            true => waited_seconds,
            false => started.elapsed().as_secs_f64(),
        });
        scores.record(step, wait, &mut self.journal);
        let Scores { evaluation, report, .. } = scores;
        self.report.show(report);
        if let Err(fault) = self.best.record(step, &evaluation, &self.options.run) {
            self.journal.say(&format!("warning: {fault}; training continues"));
        }
        let verdict = Verdict::new(&self.config.train, &evaluation, &self.best);
        let epoch = step.div_ceil(self.trainer.batches_per_epoch());
        let waited_seconds = wait.seconds;
        self.options.observe(Event::Scored { epoch, evaluation: &evaluation, waited_seconds })?;
        if let Some(outcome) = verdict.outcome() {
            let is_target_reached = outcome == Outcome::TargetReached;
            self.options.observe(Event::Decided { is_target_reached })?;
            self.trainer.ask_to_stop();
        }
        let goes_on = state.is_some() && verdict.outcome().is_none();
        let evaluation = Box::new(evaluation);
        self.phase = Phase::Verdict(EvaluationOutcome { step, state, evaluation, verdict });
        if goes_on { self.begin_report(State::Training) } else { Ok(()) }
    }

    fn wait(&self, seconds: f64) -> Wait {
        let images = self.evaluator.as_ref().map_or(0, |of| of.set().images().len());
        let ranks = self.options.team.ranks();
        let is_device = matches!(self.options.backend, Backend::Device(_));
        Wait::new(seconds, images, ranks.count, is_device)
    }

    /// Waits for the pending evaluation, if any, and broadcasts its result. All ranks must call
    /// this after the same step.
    pub(super) fn settle(&mut self) -> Result<Option<EvaluationOutcome>, EngineError> {
        self.record_scores()?;
        let (step, ours) = match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Idle => return Ok(None),
            Phase::Elsewhere { step } => (step, None),
            Phase::Scoring(_) => unreachable!("the scores are recorded"),
            Phase::Verdict(judgement) => (judgement.step, Some(judgement)),
        };
        let known = ours.as_ref().map(|judgement| judgement.verdict);
        let verdict = self.options.team.share("the verdict of an evaluation", || {
            known.ok_or_else(|| unreachable!("the first rank has recorded it"))
        })?;
        let evaluation = Box::new(Evaluation::none());
        let theirs = EvaluationOutcome { step, state: None, evaluation, verdict };
        Ok(Some(ours.unwrap_or(theirs)))
    }

    /// Like [`Self::settle`], but returns the end, if the result ends the run; then it also
    /// restores the state after the evaluated step.
    pub(super) fn end_by_verdict(&mut self) -> Result<Option<End>, EngineError> {
        let Some(judgement) = self.settle()? else { return Ok(None) };
        let Some(outcome) = judgement.verdict.outcome() else {
            self.trainer.restart_clock();
            return Ok(None);
        };
        let reason = match outcome {
            Outcome::NoImprovement => format!(
                "{} without a better score (train.patience)",
                counted(self.config.train.patience as usize, "evaluation")
            ),
            outcome => outcome.reason().to_string(),
        };
        self.journal.say(&format!("step {} ends the run: {reason}", judgement.step));
        self.go_back(judgement.step, judgement.state.as_deref())?;
        Ok(Some(End::Verdict(outcome, judgement)))
    }

    /// Discards the steps after `step`, and restores `state`, the state after that step.
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
            let steps = counted(later as usize, "step");
            self.journal.say(&format!("{steps} trained during scoring are discarded"));
        }
        self.trainer.resume_at(step);
        self.divergence = Divergence::new(&self.config);
        Ok(())
    }
}

/// Returns this rank's `part`; `None` if any rank was interrupted.
fn of_all<T>(
    team: &Team,
    what: &str,
    part: Result<T, EngineError>,
) -> Result<Option<T>, EngineError> {
    let part = match part {
        Err(EngineError::Interrupted) => None,
        part => Some(part?),
    };
    let is_whole = team.share(what, || Ok(part.is_some()))?;
    Ok(part.filter(|_| is_whole))
}
