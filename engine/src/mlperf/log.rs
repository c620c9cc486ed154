//! The log of a timed run: lines `:::MLLOG {json}`, as `mlperf-logging` writes and checks them.

use std::fmt;
use std::path::{Path, PathBuf};

use configs::mlperf::TRAIN_IMAGES;
use serde::Deserialize;
use serde_json::Value;

use super::format::{BENCHMARK, TOKEN};
use crate::error::EngineError;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It reached both targets.
    Success,
    /// It ended before.
    Aborted,
    /// Its log has no `run_stop`.
    Unfinished,
}

/// What the log of one run says.
#[derive(Debug, Clone, PartialEq)]
pub struct RunLog {
    /// The file.
    pub path: PathBuf,
    /// Images of a step.
    pub global_batch: usize,
    /// How it ended.
    pub status: Status,
    /// Minutes from `run_start` to `run_stop`; 0 without the latter.
    pub minutes: f64,
    /// Epoch of the last `eval_accuracy`; 0 without one.
    pub epochs: f64,
    /// Images of the training set.
    pub train_samples: usize,
    /// Box and mask AP of that evaluation.
    pub ap: [f64; 2],
    /// Epoch, box and mask AP of every evaluation.
    pub evaluations: Vec<(f64, [f64; 2])>,
}

/// One event.
#[derive(Debug, Deserialize)]
struct Event {
    time_ms: f64,
    key: String,
    #[serde(default)]
    value: Value,
    #[serde(default)]
    metadata: Value,
}

impl RunLog {
    /// Reads the log of a run of Mask R-CNN; lines without an event are of no matter.
    ///
    /// # Errors
    /// [`EngineError::Io`], or [`EngineError::Usage`] with file and line: an event that is no JSON,
    /// one that lacks what it must have, another benchmark, or a log without its beginning.
    pub fn read(path: &Path) -> Result<Self, EngineError> {
        let bytes = std::fs::read(path).map_err(crate::run_dir::io(path))?;
        let text = String::from_utf8_lossy(&bytes);
        let fault = |line: usize, what: String| {
            EngineError::Usage(format!("{}, line {line}: {what}", path.display()))
        };
        let mut reading = Reading::default();
        for (i, line) in text.lines().enumerate() {
            let Some((_, event)) = line.split_once(TOKEN) else { continue };
            let event: Event = serde_json::from_str(event.trim())
                .map_err(|e| fault(i + 1, format!("is no event: {e}")))?;
            reading.take(&event).map_err(|what| fault(i + 1, what))?;
        }
        let whole = |what: &str| {
            EngineError::Usage(format!(
                "{} has no {what}: give the log of a timed run, lines that begin with {TOKEN}",
                path.display()
            ))
        };
        let global_batch = reading.global_batch.ok_or_else(|| whole("global_batch_size"))?;
        let start = reading.start.ok_or_else(|| whole("run_start"))?;
        let (status, stop) = reading.stop.unwrap_or((Status::Unfinished, start));
        Ok(Self {
            path: path.to_path_buf(),
            global_batch,
            status,
            minutes: (stop - start) / 60_000.0,
            epochs: reading.epochs,
            train_samples: reading.train_samples.unwrap_or(TRAIN_IMAGES),
            ap: reading.ap,
            evaluations: reading.evaluations,
        })
    }
}

impl fmt::Display for RunLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = match self.status {
            Status::Success => "success",
            Status::Aborted => "aborted",
            Status::Unfinished => "unfinished",
        };
        // The last batch of an epoch is not full, but counts as a step of the reference.
        let steps = self.train_samples.div_ceil(self.global_batch);
        let images = self.epochs * (steps * self.global_batch) as f64;
        let [bbox, segm] = self.ap;
        write!(
            f,
            "{}  {status}  {:.3} minutes  {} epochs  {images:.0} images  box AP {bbox:.4}  mask AP \
             {segm:.4}",
            self.path.display(),
            self.minutes,
            self.epochs
        )
    }
}

/// What was read so far.
#[derive(Debug, Default)]
struct Reading {
    global_batch: Option<usize>,
    start: Option<f64>,
    stop: Option<(Status, f64)>,
    epochs: f64,
    train_samples: Option<usize>,
    ap: [f64; 2],
    evaluations: Vec<(f64, [f64; 2])>,
}

impl Reading {
    fn take(&mut self, event: &Event) -> Result<(), String> {
        let lacks = |what: &str| format!("{} without {what}", event.key);
        match event.key.as_str() {
            "submission_benchmark" if event.value != BENCHMARK => {
                return Err(format!("is of {}, not of {BENCHMARK}", event.value));
            }
            "global_batch_size" => {
                let size = event.value.as_u64().filter(|size| *size > 0);
                self.global_batch = Some(size.ok_or_else(|| lacks("a number"))? as usize);
            }
            "train_samples" => {
                let images = event.value.as_u64().ok_or_else(|| lacks("a number"))?;
                self.train_samples = Some(images as usize);
            }
            "run_start" => self.start = Some(event.time_ms),
            "run_stop" => {
                let status = match event.metadata["status"].as_str() {
                    Some("success") => Status::Success,
                    Some(_) => Status::Aborted,
                    None => return Err(lacks("a status")),
                };
                self.stop = Some((status, event.time_ms));
            }
            // The score may arrive after the run was stopped by an earlier one.
            "eval_accuracy" if self.stop.is_none() => {
                let epoch = event.metadata["epoch_num"].as_f64();
                self.epochs = epoch.ok_or_else(|| lacks("epoch_num"))?;
                for (ap, name) in self.ap.iter_mut().zip(["BBOX", "SEGM"]) {
                    *ap = event.value[name].as_f64().ok_or_else(|| lacks(name))?;
                }
                self.evaluations.push((self.epochs, self.ap));
            }
            _ => {}
        }
        Ok(())
    }
}
