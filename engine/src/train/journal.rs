//! A run's journal: the terminal, `log.txt`, `metrics.jsonl` and TensorBoard's event file.

use dali::plain;
use image::RgbImage;
use score::Summary;

use super::collect::Collected;
use crate::append::AppendFile;
use crate::draw::png;
use crate::error::EngineError;
use crate::events::EventWriter;
use crate::metrics::{Metrics, ParameterStats, StepRecord};
use crate::progress::Progress;
use crate::run_dir::RunDir;

/// A picture as PNG.
#[derive(Debug)]
pub(super) struct EncodedPicture {
    png: Vec<u8>,
    /// Height and width.
    size: (u32, u32),
}

impl EncodedPicture {
    /// Encodes a picture.
    ///
    /// # Errors
    /// A picture that cannot be encoded.
    pub(super) fn new(picture: &RgbImage) -> Result<Self, EngineError> {
        Ok(Self { png: png(picture)?, size: (picture.height(), picture.width()) })
    }
}

/// Writes the journal of a session. A failed write does not end the session.
#[derive(Debug)]
pub(super) struct Journal {
    progress: Progress,
    metrics: Metrics,
    /// Names of the trained parameters, in order.
    parameters: Vec<String>,
    /// Their statistics after the last step, if requested.
    last: Vec<ParameterStats>,
    /// Loss scale of the last step.
    last_scale: Option<f32>,
    /// The files, on rank 0; `None` on the other ranks.
    files: Option<Files>,
    has_gaps: bool,
    /// The first write error, until it is reported.
    gap: Option<EngineError>,
}

#[derive(Debug)]
struct Files {
    log: AppendFile,
    events: EventWriter,
}

impl Journal {
    /// Appends to the files of `run`, if given; a log line covers `window` steps. `parameters` are
    /// the names of the trained parameters, in order.
    pub(super) fn open(
        run: Option<&RunDir>,
        progress: Progress,
        window: usize,
        parameters: Vec<String>,
    ) -> Result<Self, EngineError> {
        let metrics = Metrics::new(run.map(|run| run.join("metrics.jsonl")).as_deref(), window)?;
        let open = |run: &RunDir| -> Result<Files, EngineError> {
            let log = AppendFile::open(&run.join("log.txt"))?;
            Ok(Files { log, events: EventWriter::create(run.path())? })
        };
        let files = run.map(open).transpose()?;
        let (last, last_scale, has_gaps, gap) = (Vec::new(), None, false, None);
        Ok(Self { progress, metrics, parameters, last, last_scale, files, has_gaps, gap })
    }

    /// Prints and logs one or more lines, with the time; the first call after a failed write also
    /// reports its error.
    pub(super) fn say(&mut self, text: &str) {
        let now = jiff::Zoned::now();
        let time = now.strftime("%Y-%m-%d %H:%M:%S");
        let lines: String = text.lines().map(|line| format!("{time} {}\n", plain(line))).collect();
        self.write(|files| files.log.append(lines.as_bytes()));
        let time = now.strftime("%H:%M:%S").to_string();
        if let Some(fault) = self.gap.take() {
            let text = format!("warning: {fault}; the log has gaps from here, training continues");
            self.progress.say_at(&time, &text);
        }
        self.progress.say_at(&time, text);
    }

    /// Records a step.
    pub(super) fn step(&mut self, mut record: StepRecord) {
        self.log_loss_scale(&record);
        self.last = std::mem::take(&mut record.parameters);
        let written = self.metrics.push(record);
        self.note(written);
    }

    /// Logs a skipped step, and a change of the loss scale.
    fn log_loss_scale(&mut self, record: &StepRecord) {
        let (step, loss_scale) = (record.step, record.loss_scale);
        if !record.applied {
            tracing::info!(step, loss_scale, "skipped a step: its gradients overflow");
        }
        let before = self.last_scale.replace(loss_scale);
        if before.is_some_and(|before| before != loss_scale) {
            tracing::info!(step, from = before, to = loss_scale, "changed the loss scale");
        }
    }

    /// Prints the log line of the last steps, and writes their scalars to the event file.
    pub(super) fn log(&mut self, total_steps: u64, peak_bytes: usize) {
        let Some(medians) = self.metrics.medians() else { return };
        let mut scalars = medians.scalars();
        for (name, stats) in self.parameters.iter().zip(&self.last) {
            scalars.extend(stats.scalars(name));
        }
        self.write(|files| files.events.scalars(medians.step, &scalars));
        self.say(&medians.line(total_steps, peak_bytes));
    }

    /// Writes collected statistics: a line in `metrics.jsonl`, and numbers and histograms in the
    /// event file.
    pub(super) fn collected(&mut self, step: u64, collected: &Collected) {
        let written = self.metrics.line(&collected.json(step));
        self.note(written);
        self.write(|files| files.events.scalars(step, &collected.scalars()));
        for (tag, histogram) in collected.histograms() {
            self.write(|files| files.events.histogram(step, &tag, &histogram));
        }
    }

    /// Writes an evaluation: a line in `metrics.jsonl`, and its defined metrics in the event file.
    pub(super) fn evaluation<'a>(
        &mut self,
        step: u64,
        line: &serde_json::Value,
        summaries: impl Iterator<Item = (&'static str, &'a Summary)>,
    ) {
        let written = self.metrics.line(line);
        self.note(written);
        for (name, summary) in summaries {
            let defined = summary.named().into_iter().filter(|(_, value)| *value >= 0.0);
            let tag = |(stat, value)| (format!("eval/{name}_{stat}"), value as f32);
            let scalars = defined.map(tag).collect::<Vec<_>>();
            self.write(|files| files.events.scalars(step, &scalars));
        }
    }

    /// Writes metrics of an evaluation to the event file.
    pub(super) fn numbers(&mut self, step: u64, numbers: &[(String, f64)]) {
        let tag = |(name, value): &(String, f64)| (format!("eval/{name}"), *value as f32);
        let scalars: Vec<_> = numbers.iter().map(tag).collect();
        self.write(|files| files.events.scalars(step, &scalars));
    }

    /// Writes a picture of an evaluation to the event file.
    pub(super) fn picture(&mut self, step: u64, picture: &EncodedPicture) {
        let EncodedPicture { png, size } = picture;
        self.write(|files| files.events.picture(step, "eval/predictions", *size, png));
    }

    /// Removes the records after `step` from `metrics.jsonl`.
    pub(super) fn forget_after(&mut self, step: u64) {
        let forgotten = self.metrics.forget_after(step);
        self.note(forgotten);
    }

    fn write(&mut self, write: impl FnOnce(&mut Files) -> Result<(), EngineError>) {
        let written = self.files.as_mut().map_or(Ok(()), write);
        self.note(written);
    }

    /// Stores the first write error, to be reported with the next line.
    fn note(&mut self, written: Result<(), EngineError>) {
        if let Err(fault) = written
            && !std::mem::replace(&mut self.has_gaps, true)
        {
            self.gap = Some(fault);
        }
    }
}
