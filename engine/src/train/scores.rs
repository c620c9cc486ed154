//! Evaluations of a run: their journal entries, the best score, and the targets.

use std::time::Instant;

use configs::Train;
use dali::score::Summary;
use serde_json::json;

use super::journal::Journal;
use crate::error::EngineError;
use crate::evaluate::{Evaluation, Evaluator};
use crate::progress::Progress;
use crate::run_dir::RunDir;
use crate::runtime::ModelState;

/// The best score so far: step and AP.
const BEST: &str = "best.json";

/// Evaluates a run, and keeps its best score.
#[derive(Debug)]
pub(super) struct Scores {
    pub(super) evaluator: Evaluator,
    best: Option<f64>,
}

impl Scores {
    /// For a new run.
    pub(super) fn new(evaluator: Evaluator) -> Self {
        Self { evaluator, best: None }
    }

    /// Reads the best score that the run recorded; `None` if it was reached after step
    /// `steps_done`, since those steps run again.
    pub(super) fn resume(&mut self, run: &RunDir, steps_done: u64) {
        self.best = read_best(run, steps_done);
    }

    /// Evaluates after `step`, and records the scores.
    pub(super) fn evaluate(
        &mut self,
        step: u64,
        state: &mut ModelState,
        run: &RunDir,
        journal: &mut Journal,
        progress: &Progress,
    ) -> Result<Evaluation, EngineError> {
        let started = Instant::now();
        let evaluation = self.evaluator.run(state, progress)?;
        let seconds = started.elapsed().as_secs_f64();
        let mut line = json!({"step": step, "eval_seconds": seconds});
        let mut text = format!("step {step}: evaluated in {seconds:.1} s");
        for (name, summary) in evaluation.summaries() {
            line[name] = stats_json(summary);
            text += &format!("  {name} AP {:.3} AP50 {:.3}", summary.stats[0], summary.stats[1]);
        }
        journal.say(&text);
        journal.evaluation(step, &line, evaluation.summaries())?;
        if let Some(ap) = evaluation.summaries().last().map(|(_, s)| s.ap())
            && self.best.is_none_or(|best| ap > best)
        {
            self.best = Some(ap);
            run.write(BEST, json!({"step": step, "ap": ap}).to_string().as_bytes())?;
        }
        Ok(evaluation)
    }
}

fn read_best(run: &RunDir, steps_done: u64) -> Option<f64> {
    let text = std::fs::read(run.join(BEST)).ok()?;
    let best: serde_json::Value = serde_json::from_slice(&text).ok()?;
    if best["step"].as_u64()? <= steps_done { best["ap"].as_f64() } else { None }
}

/// Whether the config sets targets and all are met.
pub(super) fn targets_reached(train: &Train, evaluation: &Evaluation) -> bool {
    let met = |target: Option<f64>, summary: Option<&Summary>| {
        target.map(|t| summary.is_some_and(|s| s.ap() >= t))
    };
    let box_met = met(train.target_box, evaluation.bbox.as_ref());
    let mask_met = met(train.target_mask, evaluation.segm.as_ref());
    let asked = box_met.is_some() || mask_met.is_some();
    asked && box_met.unwrap_or(true) && mask_met.unwrap_or(true)
}

/// The twelve numbers under COCO's names; undefined ones are null.
pub(super) fn stats_json(summary: &Summary) -> serde_json::Value {
    let entries = summary.named().into_iter().map(|(name, value)| {
        let value = if value < 0.0 { serde_json::Value::Null } else { value.into() };
        (name.to_string(), value)
    });
    serde_json::Value::Object(entries.collect())
}
