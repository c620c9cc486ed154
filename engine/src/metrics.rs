//! Training metrics: a log line every few steps, and a record of each step in `metrics.jsonl`.

use std::collections::VecDeque;
use std::path::Path;

use serde::Serialize;

use crate::append::AppendFile;
use crate::error::EngineError;
use crate::run_dir::replace;

/// The record of one training step.
#[derive(Debug, Clone, Serialize)]
pub struct StepRecord {
    /// Number of steps done, including this one.
    pub step: u64,
    /// Epoch, from 0.
    pub epoch: u64,
    /// Weighted sum of the losses.
    pub loss: f32,
    /// Unweighted losses, by name.
    pub losses: Vec<(&'static str, f32)>,
    /// Learning rate of this step.
    pub lr: f32,
    /// Loss scale of this step.
    pub loss_scale: f32,
    /// Global gradient norm, without the loss scale, before clipping.
    pub grad_norm: f32,
    /// False if the step was skipped because of a non-finite gradient.
    pub applied: bool,
    /// Images in the batch.
    pub images: usize,
    /// Seconds from the previous step to this one.
    pub step_seconds: f64,
    /// Part of these seconds that was spent waiting for data.
    pub data_seconds: f64,
    /// Statistics of each trained parameter, in order; empty unless `train.log_parameters`.
    #[serde(skip)]
    pub parameters: Vec<ParameterStats>,
    /// Accuracies on this rank's images, by name; empty unless `train.accuracies`.
    pub accuracies: Vec<(&'static str, f32)>,
    /// Machine metrics, by name, for steps with a log line; for the first step, also the seconds
    /// since the command began.
    pub system: Vec<(&'static str, f64)>,
}

/// Statistics of one parameter after a step, and of its gradient without loss scale and clipping.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ParameterStats {
    /// Mean of the weight after the step.
    pub weight_mean: f32,
    /// L2 norm of the weight after the step.
    pub weight_norm: f32,
    /// Mean of the gradient.
    pub gradient_mean: f32,
    /// L2 norm of the gradient.
    pub gradient_norm: f32,
}

impl ParameterStats {
    /// TensorBoard tags and values for the parameter with this name.
    pub fn scalars(&self, name: &str) -> [(String, f32); 4] {
        [
            (format!("weight_mean/{name}"), self.weight_mean),
            (format!("weight_norm/{name}"), self.weight_norm),
            (format!("gradient_mean/{name}"), self.gradient_mean),
            (format!("gradient_norm/{name}"), self.gradient_norm),
        ]
    }
}

/// Keeps the last steps for the log line, and writes every step to `metrics.jsonl`.
#[derive(Debug)]
pub struct Metrics {
    file: Option<AppendFile>,
    window: VecDeque<StepRecord>,
    window_len: usize,
    skipped: u64,
}

impl Metrics {
    /// Appends to the file at `path`; writes nothing if it is `None`.
    ///
    /// # Errors
    /// [`EngineError::Io`] if it cannot be opened.
    pub fn new(path: Option<&Path>, window_len: usize) -> Result<Self, EngineError> {
        let window_len = window_len.max(1);
        let file = path.map(AppendFile::open).transpose()?;
        Ok(Self { file, window: VecDeque::new(), window_len, skipped: 0 })
    }

    /// Records a step.
    ///
    /// # Errors
    /// [`EngineError::Io`] if the file cannot be written.
    pub fn push(&mut self, record: StepRecord) -> Result<(), EngineError> {
        let mut line = serde_json::Map::new();
        let mut put = |key: &str, value: serde_json::Value| line.insert(key.to_string(), value);
        put("step", record.step.into());
        put("epoch", record.epoch.into());
        put("loss", float(record.loss));
        for (name, value) in &record.losses {
            put(name, float(*value));
        }
        put("lr", float(record.lr));
        put("loss_scale", float(record.loss_scale));
        put("grad_norm", float(record.grad_norm));
        put("applied", record.applied.into());
        put("images", record.images.into());
        for (name, value) in &record.accuracies {
            put(name, float(*value));
        }
        for (name, value) in &record.system {
            put(&format!("system/{name}"), (*value).into());
        }
        put("step_ms", (1e3 * record.step_seconds).into());
        put("data_ms", (1e3 * record.data_seconds).into());
        self.skipped += u64::from(!record.applied);
        if self.window.len() == self.window_len {
            self.window.pop_front();
        }
        self.window.push_back(record);
        self.line(&serde_json::Value::Object(line))
    }

    /// Writes a record that is not a step, such as an evaluation.
    ///
    /// # Errors
    /// [`EngineError::Io`] if the file cannot be written.
    pub fn line(&mut self, value: &serde_json::Value) -> Result<(), EngineError> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.append(format!("{value}\n").as_bytes())
    }

    /// Removes the records after `step` from the file and the window.
    ///
    /// # Errors
    /// [`EngineError::Io`] if the file cannot be written.
    pub fn forget_after(&mut self, step: u64) -> Result<(), EngineError> {
        self.window.retain(|record| record.step <= step);
        let Some(file) = &mut self.file else { return Ok(()) };
        let path = file.path().to_path_buf();
        forget_after(&path, step, |_| false)?;
        // Reopened, since `forget_after` replaces the file.
        *file = AppendFile::open(&path)?;
        Ok(())
    }

    /// Summary of the window's steps; `None` before the first step.
    pub fn medians(&self) -> Option<Medians> {
        let last = self.window.back()?;
        let of = |get: &dyn Fn(&StepRecord) -> f64| median(self.window.iter().map(get).collect());
        let images: usize = self.window.iter().map(|r| r.images).sum();
        let seconds: f64 = self.window.iter().map(|r| r.step_seconds).sum();
        let names = last.losses.iter().enumerate();
        // A step has no value for an accuracy that had no samples.
        let accuracy = |name: &'static str| {
            let shares = self.window.iter().flat_map(|record| &record.accuracies);
            let values = shares.filter(|(of, _)| *of == name).map(|(_, value)| f64::from(*value));
            (name, median(values.collect()))
        };
        Some(Medians {
            step: last.step,
            epoch: last.epoch,
            loss: of(&|r| f64::from(r.loss)),
            losses: names.map(|(i, (n, _))| (*n, of(&|r| f64::from(r.losses[i].1)))).collect(),
            lr: last.lr,
            loss_scale: last.loss_scale,
            grad_norm: of(&|r| f64::from(r.grad_norm)),
            skipped: self.skipped,
            images_per_second: images as f64 / seconds.max(1e-9),
            step_seconds: of(&|r| r.step_seconds),
            data_seconds: of(&|r| r.data_seconds),
            system: last_of_each(self.window.iter().flat_map(|r| &r.system)),
            accuracies: last.accuracies.iter().map(|(name, _)| accuracy(name)).collect(),
        })
    }
}

/// The last value for each name, in order of first occurrence.
fn last_of_each<'a>(
    values: impl Iterator<Item = &'a (&'static str, f64)>,
) -> Vec<(&'static str, f64)> {
    let mut all: Vec<(&'static str, f64)> = vec![];
    for (name, value) in values {
        match all.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = *value,
            None => all.push((name, *value)),
        }
    }
    all
}

/// Summary of a window of steps: medians of measured values, the last values of all others.
#[derive(Debug, Clone)]
pub struct Medians {
    /// The last step.
    pub step: u64,
    /// Its epoch.
    pub epoch: u64,
    /// Median of the sum of the losses.
    pub loss: f64,
    /// Median of each loss.
    pub losses: Vec<(&'static str, f64)>,
    /// Learning rate of the last step.
    pub lr: f32,
    /// Loss scale of the last step.
    pub loss_scale: f32,
    /// Median of the gradient norm.
    pub grad_norm: f64,
    /// Steps skipped since the file was opened.
    pub skipped: u64,
    /// Images in the window divided by its duration.
    pub images_per_second: f64,
    /// Median time of a step in seconds.
    pub step_seconds: f64,
    /// Median time that a step spent waiting for data, in seconds.
    pub data_seconds: f64,
    /// Last value of each machine metric, by name.
    pub system: Vec<(&'static str, f64)>,
    /// Median of each accuracy that the last step has.
    pub accuracies: Vec<(&'static str, f64)>,
}

impl Medians {
    /// The log line.
    pub fn line(&self, total_steps: u64, peak_bytes: usize) -> String {
        let eta = (total_steps.saturating_sub(self.step)) as f64 * self.step_seconds;
        let mut line = format!(
            "eta {}  iter {}/{}  epoch {}  loss {:.4}",
            duration(eta),
            self.step,
            total_steps,
            self.epoch,
            self.loss,
        );
        for (name, value) in &self.losses {
            line += &format!("  {name} {value:.4}");
        }
        line += &format!(
            "  lr {:.5}  scale {:.0}  skipped {}  img/s {:.1}  step {:.1} ms  data {:.1} ms  \
             max_mem {}M",
            self.lr,
            self.loss_scale,
            self.skipped,
            self.images_per_second,
            1e3 * self.step_seconds,
            1e3 * self.data_seconds,
            peak_bytes >> 20,
        );
        line
    }

    /// The values of the log line, as TensorBoard tags and values.
    pub fn scalars(&self) -> Vec<(String, f32)> {
        let mut scalars = vec![
            ("train/loss".to_string(), self.loss as f32),
            ("train/lr".into(), self.lr),
            ("train/grad_norm".into(), self.grad_norm as f32),
            ("train/loss_scale".into(), self.loss_scale),
            ("train/images_per_second".into(), self.images_per_second as f32),
            ("train/step_ms".into(), 1e3 * self.step_seconds as f32),
            ("train/data_ms".into(), 1e3 * self.data_seconds as f32),
        ];
        let losses = self.losses.iter();
        scalars.extend(losses.map(|(name, value)| (format!("train/{name}"), *value as f32)));
        let system = self.system.iter();
        scalars.extend(system.map(|(name, value)| (format!("system/{name}"), *value as f32)));
        let accuracies = self.accuracies.iter();
        scalars.extend(accuracies.map(|(name, value)| (name.to_string(), *value as f32)));
        scalars
    }
}

/// Removes the records after `step`, which a resumed run repeats, from a metrics file. Also removes
/// a truncated last line, and each evaluation of `step` for which `again` returns true, meaning
/// that it will be repeated.
///
/// # Errors
/// [`EngineError::Io`] if the file cannot be written.
pub fn forget_after(
    path: &Path,
    step: u64,
    mut again: impl FnMut(&serde_json::Value) -> bool,
) -> Result<(), EngineError> {
    let Ok(text) = std::fs::read_to_string(path) else { return Ok(()) };
    let mut is_kept = |line: &&str| {
        let Ok(record) = serde_json::from_str::<serde_json::Value>(line) else { return false };
        let of = record["step"].as_u64();
        let is_evaluation = record.get("loss").is_none() && record.get("log").is_none();
        let evaluates_step = of == Some(step) && is_evaluation;
        of.is_some_and(|of| of <= step) && !(evaluates_step && again(&record))
    };
    let kept = text.lines().filter(&mut is_kept);
    let kept: String = kept.flat_map(|line| [line, "\n"]).collect();
    if kept != text {
        replace(path, kept.as_bytes())?;
    }
    Ok(())
}

/// Formats seconds as hours, minutes, seconds.
pub fn duration(seconds: f64) -> String {
    let s = seconds.round() as u64;
    format!("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
}

/// A JSON number, or a string for NaN and infinity, which JSON lacks.
pub(crate) fn float(value: f32) -> serde_json::Value {
    // `from_f64` returns `None` for NaN and infinity.
    match serde_json::Number::from_f64(f64::from(value)) {
        Some(number) => number.into(),
        None => value.to_string().into(),
    }
}

/// The median: the middle value, or the mean of the two middle values; NaN if there are no values.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => 0.5 * (values[n / 2 - 1] + values[n / 2]),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{Metrics, StepRecord, forget_after};

    pub(crate) fn record(step: u64, loss: f32) -> StepRecord {
        StepRecord {
            step,
            epoch: 0,
            loss,
            losses: vec![("loss_box_reg", loss / 2.0)],
            lr: 0.1,
            loss_scale: 1.0,
            grad_norm: loss,
            applied: true,
            images: 4,
            step_seconds: 0.5,
            data_seconds: 0.25,
            parameters: vec![],
            accuracies: vec![],
            system: vec![],
        }
    }

    #[test]
    fn log_line_and_scalars_are_window_medians() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("metrics.jsonl");
        // The maximum that the config allows. The window must not allocate memory for it in
        // advance.
        let mut metrics = Metrics::new(Some(&path), 1_000_000_000).expect("a file");
        assert!(metrics.medians().is_none());
        for (i, loss) in [9.0, 1.0, 2.0].into_iter().enumerate() {
            let accuracies = vec![("rpn/recall", loss / 4.0)];
            let record = StepRecord { accuracies, ..record(i as u64 + 1, loss) };
            metrics.push(record).expect("written");
        }
        let medians = metrics.medians().expect("three steps");
        let line = medians.line(10, 5 << 20);
        assert!(line.starts_with("eta 0:00:04  iter 3/10  epoch 0  loss 2.0000"), "{line}");
        assert!(line.contains("loss_box_reg 1.0000") && line.ends_with("max_mem 5M"), "{line}");
        let scalars = medians.scalars();
        let of = |tag: &str| scalars.iter().find(|(t, _)| t == tag).map(|(_, value)| *value);
        assert_eq!(of("train/loss"), Some(2.0));
        assert_eq!(of("train/grad_norm"), Some(2.0));
        assert_eq!(of("train/loss_box_reg"), Some(1.0));
        assert_eq!(of("train/images_per_second"), Some(8.0));
        assert_eq!(of("rpn/recall"), Some(0.5));
        let text = std::fs::read_to_string(&path).expect("the file");
        assert!(text.starts_with('{') && text.contains("\"rpn/recall\":2.25"), "{text}");
    }

    #[test]
    fn repeated_steps_and_truncated_line_are_removed_from_file() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("metrics.jsonl");
        let step = |n: u64| format!("{{\"step\":{n},\"loss\":1.0}}\n");
        let evaluation = "{\"step\":2,\"bbox\":{}}\n".to_string();
        let collected = "{\"step\":2,\"log\":\"weights\"}\n".to_string();
        let lines = [step(1), step(2), collected, evaluation, step(3), "{\"step\":4,\"lo".into()];
        std::fs::write(&path, lines.concat()).expect("a file");
        let evaluations_seen = |again: bool| {
            let mut seen = Vec::new();
            let see = |evaluation: &serde_json::Value| {
                seen.push(evaluation.clone());
                again
            };
            forget_after(&path, 2, see).expect("the file is there");
            seen
        };
        let evaluated = [serde_json::json!({"step": 2, "bbox": {}})];
        assert_eq!(evaluations_seen(false), evaluated);
        assert_eq!(std::fs::read_to_string(&path).expect("the file"), lines[..4].concat());
        assert_eq!(evaluations_seen(true), evaluated, "it was kept");
        assert_eq!(std::fs::read_to_string(&path).expect("the file"), lines[..3].concat());
        forget_after(&folder.path().join("none"), 2, |_| false).expect("a run without metrics");
    }
}
