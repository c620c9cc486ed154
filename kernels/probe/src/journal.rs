//! The results, on the screen and in a file that is complete after every variant.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use probe::measure::Figures;
use serde_json::{Value, json};

/// How a measurement ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    /// The output was right, and it took this long.
    Measured(Figures),
    /// A candidate for the descriptors was read as meant, or not.
    Read { holds: bool, expected: bool, what: Option<String> },
    /// Not run, and why.
    Skipped(String),
    /// The output was wrong, or the GPU failed.
    Failed(String),
    /// It did not finish within this many seconds.
    Stopped(f64),
}

impl Outcome {
    /// Whether something needs fixing.
    pub(crate) fn is_fault(&self) -> bool {
        match self {
            Outcome::Measured(_) | Outcome::Skipped(_) => false,
            Outcome::Read { holds, expected, .. } => holds != expected,
            Outcome::Failed(_) | Outcome::Stopped(_) => true,
        }
    }

    fn sentence(&self) -> String {
        match self {
            Outcome::Measured(figures) => measured(figures),
            Outcome::Read { holds, expected, what } => {
                let head = match (holds, expected) {
                    (true, true) => "read as meant",
                    (false, false) => "not read as meant, as expected",
                    (true, false) => "UNEXPECTED: read as meant",
                    (false, true) => "FAILED: not read as meant",
                };
                let what = what.as_ref().map_or(String::new(), |what| format!(": {what}"));
                format!("{head}{what}")
            }
            Outcome::Skipped(why) => format!("SKIPPED: {why}"),
            Outcome::Failed(why) => format!("FAILED: {why}"),
            Outcome::Stopped(seconds) => format!("FAILED: it was stopped after {seconds:.0} s"),
        }
    }

    fn json(&self) -> Value {
        match self {
            Outcome::Measured(figures) => json!({"status": "measured", "figures": figures}),
            Outcome::Read { holds, expected, what } => {
                json!({"status": "read", "holds": holds, "expected": expected, "instead": what})
            }
            Outcome::Skipped(why) => json!({"status": "skipped", "reason": why}),
            Outcome::Failed(why) => json!({"status": "failed", "reason": why}),
            Outcome::Stopped(seconds) => json!({"status": "stopped", "seconds": seconds}),
        }
    }
}

fn measured(figures: &Figures) -> String {
    let number = |value: Option<f64>, digits: usize| match value {
        Some(value) => format!("{value:.digits$}"),
        None => "?".into(),
    };
    format!(
        "{:.4} ms, {:.1} TFLOP/s (expected {}), {:.0} GB/s, {:.3} of the baseline's speed (expected \
         {}): {}",
        figures.ms,
        figures.tflops,
        number(figures.expected_tflops, 1),
        figures.gb_per_s,
        figures.ratio,
        number(figures.expected_ratio, 3),
        if figures.pays { "pays" } else { "does not pay" },
    )
}

/// The screen and the file.
#[derive(Debug)]
pub(crate) struct Journal {
    head: Value,
    results: Vec<Value>,
    file: Option<PathBuf>,
}

impl Journal {
    /// Says what is measured on, and writes a file without results: that it can be written shows
    /// before the first measurement.
    pub(crate) fn new(gpu: &str, cuda: &str, file: Option<PathBuf>) -> anyhow::Result<Self> {
        let commit = option_env!("ONEGRAPH_COMMIT").unwrap_or("unknown");
        println!("{gpu}, driver for CUDA {cuda} | commit {commit}");
        let head = json!({"gpu": gpu, "driver_cuda": cuda, "commit": commit});
        let journal = Self { head, results: Vec::new(), file };
        journal.write()?;
        Ok(journal)
    }

    /// Announces a measurement before it runs.
    pub(crate) fn begin(&self, [variant, on]: [&str; 2]) {
        print!("{variant:<14} {on:<23} ");
        // A closed screen must not end the measurements.
        let _ = std::io::stdout().flush();
    }

    /// Reports and records how it ended.
    pub(crate) fn end(&mut self, [variant, on]: [&str; 2], outcome: Outcome) -> anyhow::Result<()> {
        println!("{}", outcome.sentence());
        let mut result = outcome.json();
        result["variant"] = variant.into();
        result["on"] = on.into();
        self.results.push(result);
        self.write()
    }

    /// Replaces the file atomically.
    fn write(&self) -> anyhow::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let mut all = self.head.clone();
        all["results"] = self.results.clone().into();
        dali::file::write(file, |out| writeln!(out, "{all:#}"))
            .with_context(|| format!("writing {}", file.display()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn figures() -> Figures {
        Figures {
            different: 0,
            error_over_allowed: 0.0,
            ms: 2.0,
            baseline_ms: 2.5,
            tflops: 475.6,
            gb_per_s: 413.0,
            ratio: 1.25,
            expected_tflops: Some(442.7),
            expected_ratio: None,
            pays: true,
        }
    }

    #[test]
    fn the_file_is_whole_after_each_result() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("probe.json");
        let read = || -> Value {
            let text = fs::read_to_string(&file).expect("a file");
            serde_json::from_str(&text).expect("JSON")
        };
        let mut journal = Journal::new("H200", "12.4", Some(file.clone())).expect("a file");
        assert_eq!(read()["results"], json!([]));
        let names = ["earlier", "fpn_p2"];
        journal.end(names, Outcome::Measured(figures())).expect("a file");
        journal.end(names, Outcome::Stopped(30.0)).expect("a file");
        let found = read();
        assert_eq!(found["gpu"], "H200");
        assert_eq!(found["results"][0]["figures"]["ratio"], 1.25);
        assert_eq!(found["results"][1]["status"], "stopped");
    }

    #[test]
    fn a_file_that_cannot_be_written_shows_before_the_first_measurement() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("none/probe.json");
        assert!(Journal::new("H200", "12.4", Some(file)).is_err());
    }

    #[test]
    fn figures_stand_beside_what_was_expected() {
        assert_eq!(
            Outcome::Measured(figures()).sentence(),
            "2.0000 ms, 475.6 TFLOP/s (expected 442.7), 413 GB/s, 1.250 of the baseline's speed \
             (expected ?): pays"
        );
        let read = |holds, expected| Outcome::Read { holds, expected, what: None }.is_fault();
        assert_eq!([read(true, true), read(false, false)], [false, false]);
        assert_eq!([read(true, false), read(false, true)], [true, true]);
    }
}
