//! A run's journal: messages go to the terminal, `log.txt`, `metrics.jsonl` and TensorBoard's event
//! file.

use std::fs::{File, OpenOptions};
use std::io::Write;

use dali::score::Summary;

use crate::error::EngineError;
use crate::events::EventWriter;
use crate::metrics::{Metrics, StepRecord};
use crate::progress::Progress;
use crate::run_dir::{RunDir, io};

/// Records the events of a session.
#[derive(Debug)]
pub(super) struct Journal {
    progress: Progress,
    log: File,
    metrics: Metrics,
    events: EventWriter,
}

impl Journal {
    /// Appends to the files of `run`; a log line covers `window` steps.
    pub(super) fn open(
        run: &RunDir,
        progress: Progress,
        window: usize,
    ) -> Result<Self, EngineError> {
        let path = run.join("log.txt");
        let log = OpenOptions::new().create(true).append(true).open(&path).map_err(io(&path))?;
        let metrics = Metrics::new(&run.join("metrics.jsonl"), window)?;
        let events = EventWriter::create(run.path())?;
        Ok(Self { progress, log, metrics, events })
    }

    /// Prints and logs one or more lines. A failing log does not stop a run.
    pub(super) fn say(&mut self, text: &str) {
        self.progress.say(text);
        let _ = writeln!(self.log, "{text}");
    }

    /// Records a step.
    pub(super) fn step(&mut self, record: StepRecord) -> Result<(), EngineError> {
        self.metrics.push(record)
    }

    /// Prints the log line of the last steps, and writes their scalars as events.
    pub(super) fn log(&mut self, total_steps: u64, peak_bytes: usize) -> Result<(), EngineError> {
        if let Some(line) = self.metrics.log_line(total_steps, peak_bytes) {
            self.say(&line);
        }
        let Some(last) = self.metrics.last() else { return Ok(()) };
        let mut scalars = vec![
            ("train/loss", last.loss),
            ("train/lr", last.lr),
            ("train/grad_norm", last.grad_norm),
            ("train/loss_scale", last.loss_scale),
            ("train/images_per_second", last.images as f32 / last.step_seconds as f32),
        ];
        let names: Vec<String> = last.losses.iter().map(|(n, _)| format!("train/{n}")).collect();
        scalars.extend(names.iter().map(String::as_str).zip(last.losses.iter().map(|l| l.1)));
        self.events.scalars(last.step, &scalars)
    }

    /// Writes an evaluation: its JSON line, and AP as events.
    pub(super) fn evaluation<'a>(
        &mut self,
        step: u64,
        line: &serde_json::Value,
        summaries: impl Iterator<Item = (&'static str, &'a Summary)>,
    ) -> Result<(), EngineError> {
        self.metrics.line(line)?;
        for (name, summary) in summaries {
            let [ap, ap50] = [("AP", 0), ("AP50", 1)]
                .map(|(stat, i)| (format!("eval/{name}_{stat}"), summary.stats[i] as f32));
            self.events.scalars(step, &[(&ap.0, ap.1), (&ap50.0, ap50.1)])?;
        }
        Ok(())
    }
}
