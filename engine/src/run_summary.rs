//! A summary of a run from the files in its directory, without opening data or weights.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jiff::Timestamp;
use score::IouType;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::error::EngineError;
use crate::metrics::median;
use crate::run_dir::{RunDir, io};

/// Number of bytes that are read from the end of `metrics.jsonl`.
const TAIL_BYTES: u64 = 1 << 20;
/// Steps used to estimate speed and remaining time.
const WINDOW: usize = 20;

/// Summary of a run.
#[derive(Debug, Serialize)]
pub(crate) struct RunSummary {
    /// Its directory.
    pub(crate) run: PathBuf,
    /// `running`, or the state in `report.json`. If the run ended without recording a state:
    /// `killed` if its lock was not released, else `failed`.
    pub(crate) state: String,
    /// Number of steps done.
    pub(crate) step: Option<u64>,
    /// Total number of steps of the run.
    pub(crate) steps: Option<u64>,
    /// Loss of the last step; a string if it is not finite, null before the first step.
    pub(crate) loss: Value,
    /// Step, and AP of each IoU type, for the last evaluation; null before the first. `best` has
    /// the same values for the best evaluation.
    pub(crate) last: Value,
    pub(crate) best: Value,
    /// Average speed of the last steps.
    pub(crate) images_per_second: Option<f64>,
    /// Estimated remaining time, only for a running run.
    pub(crate) eta_seconds: Option<f64>,
    /// Time of the last change of its files; serialized with a resolution of seconds.
    #[serde(serialize_with = "to_the_second")]
    pub(crate) written: Timestamp,
}

impl RunSummary {
    /// Summarizes the run at `folder`, or the runs in its direct subfolders, most recently written
    /// first. Other folders are skipped.
    ///
    /// # Errors
    /// [`EngineError::Io`] if the folder cannot be listed.
    pub(crate) fn of_folder(folder: &Path) -> Result<Vec<Self>, EngineError> {
        if let Ok(run) = RunDir::open(folder) {
            return Ok(vec![Self::of(&run)]);
        }
        let entries = fs::read_dir(folder).map_err(io(folder))?;
        // Checkpoints also contain a config, but are not runs.
        let is_checkpoint = |path: &Path| path.join("checkpoint.json").exists();
        let opened = |entry: fs::DirEntry| {
            let path = entry.path();
            RunDir::open(&path).ok().filter(|_| !is_checkpoint(&path))
        };
        let runs = entries.flatten().filter_map(opened);
        let mut found: Vec<Self> = runs.map(|run| Self::of(&run)).collect();
        found.sort_by(|a, b| b.written.cmp(&a.written).then_with(|| a.run.cmp(&b.run)));
        Ok(found)
    }

    /// Summarizes a run. Fields whose file is missing or damaged are empty.
    fn of(run: &RunDir) -> Self {
        let report = fs::read(run.join("report.json")).unwrap_or_default();
        let report: Value = serde_json::from_slice(&report).unwrap_or_default();
        let records = last_steps(&run.join("metrics.jsonl"));
        let window = &records[records.len().saturating_sub(WINDOW)..];
        let all = |key: &str| window.iter().filter_map(|r| r[key].as_f64()).collect::<Vec<_>>();
        let (images, step_ms) = (all("images"), all("step_ms"));
        let seconds = 1e-3 * step_ms.iter().sum::<f64>();
        let last = records.last();
        let step = last.and_then(|r| r["step"].as_u64()).or(report["steps"].as_u64());
        let (steps, state) = (report["total_steps"].as_u64(), state(run, &report));
        let left = steps.zip(step).map(|(steps, step)| steps.saturating_sub(step) as f64);
        let eta_seconds = left.map(|left| left * 1e-3 * median(step_ms));
        Self {
            run: run.path().to_path_buf(),
            step,
            steps,
            loss: last.map_or(Value::Null, |record| record["loss"].clone()),
            last: scores(&report, &report["evaluated_step"]),
            best: scores(&report["best"], &report["best"]["step"]),
            images_per_second: (seconds > 0.0).then(|| images.iter().sum::<f64>() / seconds),
            eta_seconds: eta_seconds.filter(|eta| state == "running" && eta.is_finite()),
            written: written(run),
            state,
        }
    }
}

/// The state of a run. If it has no owner but the reported state is still `training`, it ended
/// without recording a state.
fn state(run: &RunDir, report: &Value) -> String {
    if run.owner().is_some() {
        return "running".into();
    }
    let unreported = || if run.is_abandoned() { "killed" } else { "failed" };
    match report["state"].as_str() {
        None | Some("training") => unreported().into(),
        Some(ended) => ended.into(),
    }
}

/// The step, and the AP of each IoU type (keypoints only if they were scored). Null if there
/// is no step.
fn scores(of: &Value, step: &Value) -> Value {
    if !step.is_u64() {
        return Value::Null;
    }
    let mut scores = json!({"step": step});
    for kind in IouType::ALL {
        let ap = &of[kind.name()]["AP"];
        if kind != IouType::Keypoints || !ap.is_null() {
            scores[kind.name()] = ap.clone();
        }
    }
    scores
}

/// The last records of steps in a metrics file.
fn last_steps(path: &Path) -> Vec<Value> {
    let mut tail = Vec::new();
    let read = File::open(path).and_then(|mut file| {
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        file.take(TAIL_BYTES).read_to_end(&mut tail)
    });
    let text = read.map(|_| String::from_utf8_lossy(&tail)).unwrap_or_default();
    // Skips truncated lines at both ends, which are not valid JSON.
    let records = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    records.filter(|record| record.get("step_ms").is_some()).collect()
}

fn to_the_second<S: Serializer>(time: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{time:.0}"))
}

fn written(run: &RunDir) -> Timestamp {
    let of = |file| fs::metadata(run.join(file)).and_then(|meta| meta.modified()).ok();
    let files = ["config.toml", "last_checkpoint", "metrics.jsonl", "report.json"];
    let last = files.into_iter().filter_map(of).max().unwrap_or(SystemTime::UNIX_EPOCH);
    Timestamp::try_from(last).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_state_follows_lock_and_report() {
        let parent = tempfile::tempdir().unwrap();
        let run = RunDir::create(parent.path(), "run").unwrap();
        let reported = |state: &str| json!({"state": state}).to_string();
        let write = |name: &str, text: &str| fs::write(run.join(name), text).unwrap();
        let found = || RunSummary::of_folder(parent.path()).unwrap();
        assert!(found().is_empty(), "it is no run before it has a config");
        write("config.toml", "");
        assert_eq!((found()[0].state.as_str(), found()[0].step), ("running", None));
        write("report.json", &reported("interrupted"));
        assert_eq!(found()[0].state, "running", "it was resumed");
        let lock = fs::read(run.join(".onegraph-lock")).unwrap();
        let path = run.path().to_path_buf();
        drop(run);
        for state in ["interrupted", "diverged", "done"] {
            fs::write(path.join("report.json"), reported(state)).unwrap();
            assert_eq!(found()[0].state, state);
        }
        fs::write(path.join("report.json"), reported("training")).unwrap();
        assert_eq!(found()[0].state, "failed");
        fs::write(path.join(".onegraph-lock"), lock).unwrap();
        assert_eq!(found()[0].state, "killed");
        assert_eq!(RunSummary::of_folder(&path).unwrap().len(), 1, "a run itself");
        assert!(RunSummary::of_folder(&path.join("none")).is_err());
    }

    #[test]
    fn last_steps_are_found_in_long_file_with_truncated_end() {
        let parent = tempfile::tempdir().unwrap();
        let run = RunDir::create(parent.path(), "run").unwrap();
        let step = |step: u64, loss: Value| {
            json!({"step": step, "loss": loss, "images": 8,
            "step_ms": 500.0})
        };
        let mut lines: Vec<Value> = (1..=40_000).map(|i| step(i, 1.5.into())).collect();
        lines.push(step(40_001, "NaN".into()));
        lines.push(json!({"step": 40_001, "bbox": {"AP": 0.5}, "eval_seconds": 1.0}));
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        assert!(text.len() as u64 > TAIL_BYTES);
        run.write("metrics.jsonl", (text + "{\"step\": 40002, \"lo").as_bytes()).unwrap();
        let best = json!({"step": 30_000, "bbox": {"AP": 0.625}, "segm": null});
        let report = json!({"state": "training", "total_steps": 40_101, "best": best,
            "evaluated_step": 40_001, "bbox": {"AP": 0.5}});
        run.write("report.json", report.to_string().as_bytes()).unwrap();
        let found = RunSummary::of(&run);
        assert_eq!(
            (found.step, found.steps, found.loss),
            (Some(40_001), Some(40_101), "NaN".into())
        );
        assert_eq!((found.images_per_second, found.eta_seconds), (Some(16.0), Some(50.0)));
        assert_eq!(found.last, json!({"step": 40_001, "bbox": 0.5, "segm": null}));
        assert_eq!(found.best, json!({"step": 30_000, "bbox": 0.625, "segm": null}));
    }
}
