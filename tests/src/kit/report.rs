//! What the stages came to: the table for people, JSON for programs.

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
    /// What it measured, or why it failed or was skipped.
    pub(super) figure: String,
    /// All figures, where the stage wrote some.
    pub(super) details: Value,
}

/// All stages.
#[derive(Debug)]
pub(super) struct Report {
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
            })
        };
        let stages: Vec<Value> = self.rows.iter().map(row).collect();
        let value = json!({
            "commit": bench::commit(),
            "seconds": self.seconds,
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
