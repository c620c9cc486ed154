//! How a run ends: its last checkpoint, and losses that are not finite.

use super::Session;
use crate::checkpoint;
use crate::error::EngineError;
use crate::metrics::StepRecord;
use crate::train::divergence::{advice, bad_value};
use crate::train::options::Outcome;
use crate::train::replay::Replay;
use crate::train::report::State;

impl Session {
    /// Saves after the last step. What cannot be written is kept for [`Session::finish`], unless
    /// nothing is left to do before it.
    pub(super) fn save_last(&mut self, outcome: Outcome) -> Result<(), EngineError> {
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

    pub(super) fn last_checkpoint(&self) -> Option<String> {
        let last = checkpoint::last(self.options.run.path());
        last.ok().map(|path| path.display().to_string())
    }

    /// Says why an interrupted run resumes before the step that it has reached.
    pub(super) fn say_unsaved(&mut self) {
        let (step, last) = (self.trainer.steps_done(), self.last_checkpoint().unwrap_or_default());
        self.journal.say(&format!(
            "warning: the losses are non-finite, so nothing is saved after step {step}; last good \
             checkpoint: {last}"
        ));
    }

    /// Keeps the first fault of a file, for [`Session::finish`]; passes on any other.
    pub(super) fn keep_fault(
        &mut self,
        written: Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        match written {
            Err(fault @ (EngineError::Io { .. } | EngineError::Unsaved { .. })) => {
                self.unwritten.get_or_insert(fault);
                Ok(())
            }
            written => written,
        }
    }

    /// The error of a run that is lost, with what a replay of the first bad step shows.
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
                advice: "the first rank tells more".into(),
            };
        }
        if let Err(fault) = self.write_report(State::Diverged) {
            self.journal.say(&format!("warning: no report: {fault}"));
        }
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
        let folder = self.options.run.folder("replay")?;
        let path = folder.join(format!("step_{:08}.safetensors", record.step));
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
}
