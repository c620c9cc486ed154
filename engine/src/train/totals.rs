//! Totals of steps, images and time, for a session and for all sessions of a run.

use std::time::Instant;

use serde_json::{Value, json};

use crate::metrics::{StepRecord, duration};

/// Totals of a session, without the earlier steps of a resumed run.
#[derive(Debug)]
pub(super) struct Totals {
    opened: Instant,
    started: String,
    train_seconds: f64,
    images: u64,
    steps: u64,
}

impl Totals {
    pub(super) fn new() -> Self {
        let started = crate::provenance::now();
        Self { opened: Instant::now(), started, train_seconds: 0.0, images: 0, steps: 0 }
    }

    /// Records a step.
    pub(super) fn add(&mut self, record: &StepRecord) {
        self.train_seconds += record.step_seconds;
        self.images += record.images as u64;
        self.steps += 1;
    }

    /// True before the first step.
    pub(super) fn is_empty(&self) -> bool {
        self.steps == 0
    }

    /// The last line printed by a run.
    pub(super) fn describe(&self) -> String {
        let time = duration(self.seconds());
        match per_second(self.images, self.train_seconds) {
            Some(speed) => {
                format!("{} steps in {time}, {speed:.1} images/s while training", self.steps)
            }
            None => format!("no step was left to train; evaluated and reported in {time}"),
        }
    }

    /// Time at which the session started.
    pub(super) fn started(&self) -> &str {
        &self.started
    }

    /// The session's totals for `report.json`.
    pub(super) fn json(&self) -> Value {
        json!({
            "started": self.started,
            "steps": self.steps,
            "seconds": self.seconds(),
            "train_seconds": self.train_seconds,
            "images_per_second": per_second(self.images, self.train_seconds),
        })
    }

    fn seconds(&self) -> f64 {
        self.opened.elapsed().as_secs_f64()
    }
}

/// Time and speed over all records of `metrics.jsonl`, including earlier sessions; repeated steps
/// count once.
pub(super) fn of_records(records: &[Value]) -> Value {
    let sum = |key: &str| -> f64 { records.iter().filter_map(|r| r[key].as_f64()).sum() };
    let images: u64 = records.iter().filter_map(|r| r["images"].as_u64()).sum();
    let train_seconds = 1e-3 * sum("step_ms");
    // Records of older versions have no waiting time; training waited for the whole evaluation
    // then.
    let waited = |record: &Value| {
        let key = ["waited_seconds", "eval_seconds"].iter().find_map(|key| record[*key].as_f64());
        key.unwrap_or(0.0)
    };
    json!({
        "seconds": train_seconds + records.iter().map(waited).sum::<f64>(),
        "train_seconds": train_seconds,
        "images_per_second": per_second(images, train_seconds),
    })
}

/// `None` without images.
fn per_second(images: u64, seconds: f64) -> Option<f64> {
    (images > 0 && seconds > 0.0).then(|| images as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_totals_are_summed_from_records() {
        let records = [
            json!({"step": 1, "images": 8, "step_ms": 500.0, "loss": 1.0}),
            json!({"step": 2, "images": 4, "step_ms": 1000.0, "loss": 1.0}),
            json!({"step": 2, "eval_seconds": 1.5}),
            json!({"step": 2, "eval_seconds": 3.0, "waited_seconds": 0.5}),
        ];
        let totals = of_records(&records);
        assert_eq!((&totals["seconds"], &totals["train_seconds"]), (&3.5.into(), &1.5.into()));
        assert_eq!(totals["images_per_second"], 8.0);
        assert!(of_records(&[])["images_per_second"].is_null());
    }

    #[test]
    fn session_without_steps_has_no_speed() {
        let totals = Totals::new();
        let said = totals.describe();
        assert!(said.starts_with("no step was left to train") && !said.contains("/s"), "{said}");
        assert!(totals.json()["images_per_second"].is_null());
    }
}
