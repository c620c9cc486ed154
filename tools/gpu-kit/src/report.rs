//! The results of the stages: a table for people, JSON for programs.

use std::fmt;

use serde_json::{Value, json};

/// How a stage ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    Skipped,
    Failed,
}

/// One stage.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) stage: String,
    pub(super) outcome: Outcome,
    pub(super) seconds: f64,
    /// The measured value, or why the stage failed or was skipped.
    pub(super) figure: String,
    /// All figures, if the stage wrote any.
    pub(super) details: Value,
    /// Clocks, power and temperature during it.
    pub(super) clocks: Value,
}

/// All stages so far.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) call: String,
    /// Number of stages in the call.
    pub(super) stages: usize,
    pub(super) rows: Vec<Row>,
    pub(super) seconds: f64,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Outcome::Passed => "ok",
            Outcome::Skipped => "SKIPPED",
            Outcome::Failed => "FAILED",
        })
    }
}

impl Row {
    /// A row of a stage that did not run, or has no figures.
    pub(super) fn new(stage: &str, outcome: Outcome, seconds: f64, figure: &str) -> Self {
        let (stage, figure) = (stage.to_string(), figure.to_string());
        Self { stage, outcome, seconds, figure, details: Value::Null, clocks: Value::Null }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row { stage, outcome, seconds, figure, .. } = self;
        write!(f, "{stage:<18} {outcome:<8} {seconds:>7.1}  {figure}")
    }
}

impl Report {
    pub(super) fn failed(&self) -> usize {
        self.rows.iter().filter(|row| row.outcome == Outcome::Failed).count()
    }

    pub(super) fn json(&self) -> String {
        let row = |row: &Row| {
            json!({
                "stage": row.stage,
                "result": row.outcome.to_string(),
                "seconds": row.seconds,
                "figure": row.figure,
                "details": row.details,
                "clocks": row.clocks,
            })
        };
        let stages: Vec<Value> = self.rows.iter().map(row).collect();
        let value = json!({
            "commit": bench::commit(),
            "call": self.call,
            "seconds": self.seconds,
            "stages_in_all": self.stages,
            "failed": self.failed(),
            "stages": stages,
        });
        format!("{value:#}\n")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<18} {:<8} {:>7}  figure", "stage", "result", "seconds")?;
        self.rows.iter().try_for_each(|row| writeln!(f, "{row}"))?;
        let skipped = self.rows.iter().filter(|row| row.outcome == Outcome::Skipped).count();
        if self.rows.len() < self.stages {
            writeln!(f, "{} stages were not run", self.stages - self.rows.len())?;
        }
        writeln!(
            f,
            "{} stages, {} failed, {skipped} skipped, {:.0} s, commit {}",
            self.rows.len(),
            self.failed(),
            self.seconds,
            bench::commit(),
        )
    }
}
