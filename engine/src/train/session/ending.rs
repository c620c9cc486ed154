//! The end of a run: last checkpoint, scores and report, or the error for non-finite losses.

use std::time::Instant;

use super::{End, Session};
use crate::checkpoint;
use crate::error::EngineError;
use crate::evaluate::Evaluation;
use crate::metrics::StepRecord;
use crate::remote::name_of;
use crate::run_dir::best_of;
use crate::train::divergence::{advice, bad_value};
use crate::train::observer::Event;
use crate::train::options::Outcome;
use crate::train::replay::Replay;
use crate::train::report::State;

impl Session {
    /// Saves the state after the last step, evaluates it if necessary, and writes the report.
    pub(super) fn conclude(&mut self, end: End) -> Result<(Outcome, Evaluation), EngineError> {
        let is_interrupted = matches!(end, End::Interrupted);
        let is_saved = self
            .options
            .team
            .share("whether there is a checkpoint", || Ok(self.last_checkpoint().is_some()))?;
        if self.divergence.is_sound() {
            self.save_last(is_interrupted)?;
        } else if !is_interrupted || !is_saved {
            return Err(self.diverged());
        } else {
            self.say_unsaved();
        }
        let evaluated = match end {
            End::Steps if !self.config.train.eval_at_end || self.evaluator.is_none() => {
                self.options.observe(Event::Decided { is_target_reached: false })?;
                Some((Outcome::Done, Evaluation::none()))
            }
            End::Steps => self.evaluate_last()?,
            End::Interrupted => None,
            End::Verdict(outcome, judgement) => Some((outcome, *judgement.evaluation)),
        };
        let Some((outcome, evaluation)) = evaluated else {
            self.options.observe(Event::Decided { is_target_reached: false })?;
            self.log_outcome(Outcome::Interrupted);
            self.begin_report(State::Ended(Outcome::Interrupted))?;
            self.report.finish(&mut self.journal);
            self.say_best();
            return Ok((Outcome::Interrupted, Evaluation::none()));
        };
        self.log_outcome(outcome);
        let reported = self.write_report(State::Ended(outcome));
        if let Some(classes) = self.report.class_table() {
            self.journal.say(classes);
        }
        self.journal.say(&self.report.totals.describe());
        self.say_best();
        self.keep_fault(reported)?;
        Ok((outcome, evaluation))
    }

    /// Evaluates the state after the last step. Returns `None` if a signal interrupted it.
    fn evaluate_last(&mut self) -> Result<Option<(Outcome, Evaluation)>, EngineError> {
        self.begin_evaluation(None, Instant::now())?;
        let Some(judgement) = self.settle()? else { return Ok(None) };
        if judgement.verdict.outcome().is_none() {
            self.options.observe(Event::Decided { is_target_reached: false })?;
        }
        let outcome = match judgement.verdict.is_target_reached {
            true => Outcome::TargetReached,
            false => Outcome::Done,
        };
        Ok(Some((outcome, *judgement.evaluation)))
    }

    /// Saves the state after the last step, and waits until it is written. A file error is kept for
    /// [`Session::finish`], so that the scores are still computed; after an interrupt it is
    /// returned.
    fn save_last(&mut self, is_interrupted: bool) -> Result<(), EngineError> {
        let step = self.trainer.steps_done();
        if !self.options.team.is_first() {
            return Ok(());
        }
        self.checkpoints.finish(&mut self.journal)?;
        if self.checkpoints.has_saved(step) {
            return Ok(());
        }
        let begun = self.begin_save();
        let saved = begun.and_then(|_| self.checkpoints.join(&mut self.journal));
        let saved = saved.map_err(|fault| match fault {
            EngineError::Io { .. } => {
                let last = self.last_checkpoint().unwrap_or("none".into());
                EngineError::Unsaved { step, last, fault: Box::new(fault) }
            }
            fault => fault,
        });
        if is_interrupted { saved } else { self.keep_fault(saved) }
    }

    fn write_report(&mut self, state: State) -> Result<(), EngineError> {
        self.report.write(state, self.trainer.steps_done(), &mut self.journal)
    }

    fn log_outcome(&self, outcome: Outcome) {
        let (steps_done, of) = (self.trainer.steps_done(), self.config.train.steps);
        tracing::info!(steps_done, of, "stops: {}", outcome.reason());
    }

    /// Prints the checkpoint with the best score, if there is one.
    fn say_best(&mut self) {
        let run = self.options.run.path();
        if let Some((folder, score)) = best_of(run).filter(|(best, _)| run.join(best).is_dir()) {
            self.journal.say(&format!("best: {score}: {}", name_of(&run.join(folder))));
        }
    }

    fn last_checkpoint(&self) -> Option<String> {
        let last = checkpoint::last(self.options.run.path());
        last.ok().map(|path| path.display().to_string())
    }

    /// Warns that nothing is saved after the last step of an interrupted run.
    fn say_unsaved(&mut self) {
        let (step, last) = (self.trainer.steps_done(), self.last_checkpoint().unwrap_or_default());
        self.journal.say(&format!(
            "warning: the losses are non-finite, so nothing is saved after step {step}; last good \
             checkpoint: {last}"
        ));
    }

    /// Keeps the first file error for [`Session::finish`]; returns errors of other kinds.
    fn keep_fault(&mut self, written: Result<(), EngineError>) -> Result<(), EngineError> {
        match written {
            Err(fault @ (EngineError::Io { .. } | EngineError::Unsaved { .. })) => {
                self.unwritten.get_or_insert(fault);
                Ok(())
            }
            written => written,
        }
    }

    /// The error for a run that cannot recover; includes the result of replaying the first bad
    /// step.
    pub(super) fn diverged(&mut self) -> EngineError {
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
                advice: "see the output of rank 0".into(),
            };
        }
        if let Err(fault) = self.write_report(State::Diverged) {
            self.journal.say(&format!("warning: no report: {fault}"));
        }
        let run = self.options.run.path().display().to_string();
        let saved = self.last_checkpoint().unwrap_or("none was saved".into());
        let origin = if self.divergence.has_moved() {
            " (its gradients were finite, so the weights have changed and it cannot be replayed)"
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

    /// Saves the step of `record` as a replay file, and runs it again. Returns a text with its
    /// images and the first non-finite tensor.
    fn replay(&mut self, record: &StepRecord) -> Result<String, EngineError> {
        while self.trainer.in_flight() > 0 {
            self.trainer.step(self.trainer.steps_done())?;
        }
        let replay = Replay::take(&mut self.trainer, &self.config, &self.data, record)?;
        let folder = self.options.run.folder("replay")?;
        let path = folder.join(format!("step_{:08}.safetensors", record.step));
        replay.save(&path)?;
        let found = replay.run(&path, &self.options.backend)?;
        let first = match found.non_finite {
            Some(tensor) => format!("first non-finite: {tensor}"),
            None => "all values are finite in a replay".into(),
        };
        let ids: Vec<String> = replay.image_ids.iter().map(u64::to_string).collect();
        let (ids, path) = (ids.join(", "), path.display());
        Ok(format!(" (images {ids}; {first}; to replay: onegraph replay {path})"))
    }
}
