//! `report.json`: the outcome of a run.

use std::time::Instant;

use serde_json::json;
use sha2::{Digest, Sha256};

use super::scores::stats_json;
use crate::error::EngineError;
use crate::evaluate::Evaluation;
use crate::metrics::{StepRecord, duration};
use crate::run_dir::RunDir;

/// What a session has done since it was opened; the earlier steps of a resumed run do not count.
#[derive(Debug)]
pub(super) struct Totals {
    started: Instant,
    train_seconds: f64,
    images: u64,
    steps: u64,
}

impl Totals {
    pub(super) fn new() -> Self {
        Self { started: Instant::now(), train_seconds: 0.0, images: 0, steps: 0 }
    }

    /// Records a step.
    pub(super) fn add(&mut self, record: &StepRecord) {
        self.train_seconds += record.step_seconds;
        self.images += record.images as u64;
        self.steps += 1;
    }

    /// The last line that a run prints.
    pub(super) fn describe(&self) -> String {
        format!(
            "{} steps in {}, {:.1} images/s while training",
            self.steps,
            duration(self.started.elapsed().as_secs_f64()),
            self.images_per_second(),
        )
    }

    fn images_per_second(&self) -> f64 {
        self.images as f64 / self.train_seconds.max(1e-9)
    }
}

/// The fields of `report.json` beside totals and scores.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    pub(super) steps_done: u64,
    pub(super) device: String,
    pub(super) target_reached: bool,
    /// The resolved config.
    pub(super) config_toml: &'a str,
}

/// Writes `report.json`.
pub(super) fn write(
    run: &RunDir,
    totals: &Totals,
    facts: &Facts<'_>,
    evaluation: &Evaluation,
) -> Result<(), EngineError> {
    let digest = Sha256::digest(facts.config_toml.as_bytes());
    let mut report = json!({
        "steps": facts.steps_done,
        "seconds": totals.started.elapsed().as_secs_f64(),
        "train_seconds": totals.train_seconds,
        "images_per_second": totals.images_per_second(),
        "device": facts.device,
        "threads": std::thread::available_parallelism().map_or(1, usize::from),
        "target_reached": facts.target_reached,
        "config_sha256": digest.iter().map(|b| format!("{b:02x}")).collect::<String>(),
        "version": env!("CARGO_PKG_VERSION"),
    });
    for (name, summary) in evaluation.summaries() {
        report[name] = stats_json(summary);
    }
    let text = serde_json::to_vec_pretty(&report)
        .map_err(|e| EngineError::Usage(format!("report.json: {e}")))?;
    run.write("report.json", &text)?;
    Ok(())
}
