//! Reads the log of a timed run: lines `:::MLLOG {json}` in the format of `mlperf-logging`.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::mlperf::TRAIN_IMAGES;
use serde::Deserialize;
use serde_json::Value;

use super::format::{BENCHMARK, TOKEN};
use crate::checkpoint::hex_digest;
use crate::error::EngineError;

/// Target box and mask AP of the rules; a run ends when it reaches both.
const TARGETS: [f64; 2] = [0.377, 0.339];

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It reached both targets.
    Success,
    /// It ended before it reached them.
    Aborted,
    /// Its log has no `run_stop`.
    Unfinished,
}

/// The contents of the log of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunLog {
    /// The file.
    pub path: PathBuf,
    /// Images per step.
    pub global_batch: usize,
    /// How it ended.
    pub status: Status,
    /// The system's name, if it is in the log.
    pub platform: Option<String>,
    /// The seed, if it is in the log.
    pub seed: Option<u64>,
    /// True if the log states that caches were cleared.
    pub clears_caches: bool,
    /// SHA-256 of the log file.
    pub digest: String,
    /// Minutes from `run_start` to `run_stop`; 0 without a `run_stop`.
    pub minutes: f64,
    /// Epoch of the last `eval_accuracy`; 0 if there is none.
    pub epochs: f64,
    /// Number of images in the training set.
    pub train_samples: usize,
    /// Box and mask AP of the last `eval_accuracy`.
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
    /// Reads the log of a Mask R-CNN run; lines without an event are ignored.
    ///
    /// # Errors
    /// [`EngineError::Io`]; [`EngineError::Usage`], with file and line, for an event that is not
    /// JSON, lacks a required field or is repeated, for a different benchmark, and for a log whose
    /// beginning is missing. An incomplete last line is ignored, as it may still be being written.
    pub fn read(path: &Path) -> Result<Self, EngineError> {
        let bytes = dali::file::read(path).map_err(crate::run_dir::io(path))?;
        let text = String::from_utf8_lossy(&bytes);
        let fault = |line: usize, what: String| {
            EngineError::Usage(format!("{}, line {line}: {what}", path.display()))
        };
        let mut reading = Reading::default();
        let whole_lines = text.matches('\n').count();
        for (i, line) in text.lines().enumerate() {
            let Some((_, event)) = line.split_once(TOKEN) else { continue };
            let event: Event = match serde_json::from_str(event.trim()) {
                Ok(event) => event,
                Err(_) if i == whole_lines => break,
                Err(why) => return Err(fault(i + 1, format!("is not an event: {}", reason(&why)))),
            };
            reading.take(&event).map_err(|what| fault(i + 1, what))?;
        }
        let whole = |what: &str| {
            EngineError::Usage(format!(
                "{} has no {what}: give the log of a timed run, lines that begin with {TOKEN}",
                path.display()
            ))
        };
        if reading.is_initializing && reading.start.is_none() {
            return Err(EngineError::Usage(format!(
                "{} has no run_start: its clock has not started. Try again later; if the run has \
                 ended, it does not count",
                path.display()
            )));
        }
        let start = reading.start.ok_or_else(|| whole("run_start"))?;
        let global_batch = reading.global_batch.ok_or_else(|| whole("global_batch_size"))?;
        let (status, stop) = reading.stop.unwrap_or((Status::Unfinished, start));
        Ok(Self {
            path: path.to_path_buf(),
            global_batch,
            status,
            platform: reading.platform,
            seed: reading.seed,
            clears_caches: reading.clears_caches,
            digest: hex_digest(&bytes),
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
        // The last batch of an epoch is not full, but the reference counts it as a step.
        let steps = self.train_samples.div_ceil(self.global_batch) as f64;
        let images = self.epochs * steps * self.global_batch as f64;
        let minutes = match self.status {
            Status::Unfinished => "-".to_string(),
            _ => format!("{:.3}", self.minutes),
        };
        let [bbox, segm] = self.ap;
        write!(
            f,
            "{}  {status}  {minutes} minutes  {} epochs  {images:.0} images  box AP {bbox:.4}  \
             mask AP {segm:.4}",
            self.path.display(),
            self.epochs
        )?;
        if self.status == Status::Success && (bbox < TARGETS[0] || segm < TARGETS[1]) {
            let [bbox, segm] = TARGETS;
            write!(f, "  (MLPerf's targets are {bbox} and {segm})")?;
        }
        Ok(())
    }
}

/// The parser's message without its position, as each line is parsed separately.
fn reason(fault: &serde_json::Error) -> String {
    let text = fault.to_string();
    text.split_once(" at line ").map_or(text.clone(), |(reason, _)| reason.to_string())
}

/// The log as read so far.
#[derive(Debug, Default)]
struct Reading {
    is_initializing: bool,
    platform: Option<String>,
    seed: Option<u64>,
    clears_caches: bool,
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
                return Err(format!("is of benchmark {}, not of {BENCHMARK}", event.value));
            }
            "global_batch_size" => {
                let size = event.value.as_u64().filter(|size| *size > 0);
                self.global_batch = Some(size.ok_or_else(|| lacks("a number"))? as usize);
            }
            "train_samples" => {
                let images = event.value.as_u64().ok_or_else(|| lacks("a number"))?;
                self.train_samples = Some(images as usize);
            }
            "seed" => self.seed = event.value.as_u64(),
            "cache_clear" => self.clears_caches = event.value == true,
            "init_start" => self.is_initializing = true,
            "submission_platform" => self.platform = event.value.as_str().map(String::from),
            "run_start" if self.start.is_some() => {
                return Err("is a second run_start: give a separate log for each run".into());
            }
            "run_start" => self.start = Some(event.time_ms),
            "run_stop" if self.stop.is_some() => {
                return Err("is a second run_stop: give a separate log for each run".into());
            }
            "run_stop" if self.start.is_none_or(|start| start > event.time_ms) => {
                return Err("run_stop comes before run_start".into());
            }
            "run_stop" => {
                let status = match event.metadata["status"].as_str() {
                    Some("success") => Status::Success,
                    Some(_) => Status::Aborted,
                    None => return Err(lacks("a status")),
                };
                self.stop = Some((status, event.time_ms));
            }
            // A score logged after the run stopped is ignored.
            "eval_accuracy" if self.stop.is_none() => {
                let epoch = event.metadata["epoch_num"].as_f64();
                let epoch = epoch.filter(|epoch| (0.0..=1e6).contains(epoch));
                self.epochs = epoch.ok_or_else(|| lacks("an epoch_num from 0 on"))?;
                for (ap, name) in self.ap.iter_mut().zip(["BBOX", "SEGM"]) {
                    // -1 is undefined.
                    let value = event.value[name].as_f64().filter(|ap| (-1.0..=1.0).contains(ap));
                    *ap = value.ok_or_else(|| lacks(&format!("a {name} of at most 1")))?;
                }
                self.evaluations.push((self.epochs, self.ap));
            }
            _ => {}
        }
        Ok(())
    }
}
