//! A run's journal: messages go to the terminal, `log.txt`, `metrics.jsonl` and TensorBoard's event
//! file.

use std::fs::{File, OpenOptions};
use std::io::Write;

use dali::score::Summary;
use image::RgbImage;

use crate::draw::png;
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

    /// Prints and logs one or more lines, with the time. A failing log does not stop a run.
    pub(super) fn say(&mut self, text: &str) {
        let now = jiff::Zoned::now();
        self.progress.say_at(&now.strftime("%H:%M:%S").to_string(), text);
        let time = now.strftime("%Y-%m-%d %H:%M:%S");
        for line in text.lines() {
            let _ = writeln!(self.log, "{time} {line}");
        }
    }

    /// Records a step.
    pub(super) fn step(&mut self, record: StepRecord) -> Result<(), EngineError> {
        self.metrics.push(record)
    }

    /// Prints the log line of the last steps, and writes their scalars as events.
    pub(super) fn log(&mut self, total_steps: u64, peak_bytes: usize) -> Result<(), EngineError> {
        let Some(medians) = self.metrics.medians() else { return Ok(()) };
        self.say(&medians.line(total_steps, peak_bytes));
        self.events.scalars(medians.step, &medians.scalars())
    }

    /// Writes an evaluation: its JSON line, and its twelve numbers as events; undefined ones are
    /// left out.
    pub(super) fn evaluation<'a>(
        &mut self,
        step: u64,
        line: &serde_json::Value,
        summaries: impl Iterator<Item = (&'static str, &'a Summary)>,
    ) -> Result<(), EngineError> {
        self.metrics.line(line)?;
        for (name, summary) in summaries {
            let defined = summary.named().into_iter().filter(|(_, value)| *value >= 0.0);
            let tag = |(stat, value)| (format!("eval/{name}_{stat}"), value as f32);
            self.events.scalars(step, &defined.map(tag).collect::<Vec<_>>())?;
        }
        Ok(())
    }

    /// Writes a picture of an evaluation as an event.
    pub(super) fn picture(&mut self, step: u64, picture: &RgbImage) -> Result<(), EngineError> {
        let png = png(picture)?;
        let size = (picture.height(), picture.width());
        self.events.picture(step, "eval/predictions", size, &png)
    }
}
