//! Comparison of runs: reads their files, and compares configs and scores.

use std::path::{Path, PathBuf};

use crate::config::{Config, Difference};
use score::{Comparison, IouType, Results, compare};
use serde_json::Value;

use crate::dataset::{DataSet, Split, is_same_data};
use crate::error::EngineError;
use crate::evaluate::EvaluationSet;
use crate::progress::{Progress, counted};
use crate::run_dir::RunDir;

/// Maximum difference between the reported AP and the AP computed from the stored detections.
const SAME_AP: f64 = 1e-3;

/// A run that was read from its directory.
pub(crate) struct ComparedRun {
    /// Name of the directory, or its path if another run has the same name.
    pub(crate) name: String,
    path: PathBuf,
    config: Config,
    /// `report.json`.
    pub(crate) report: Value,
    /// Records of `metrics.jsonl`.
    pub(crate) records: Vec<Value>,
}

/// The result of comparing a run with the first.
pub(crate) struct ComparedWithFirst {
    /// Config keys with different values.
    pub(crate) keys: Vec<Difference>,
    /// Comparison for each IoU type.
    pub(crate) scores: Vec<Comparison>,
}

/// Opens runs, and compares each with the first, with `samples` bootstrap resamples of the images.
///
/// # Errors
/// A folder that is not a run, runs that were scored on different images, or missing data.
pub(crate) fn compare_runs(
    folders: &[PathBuf],
    samples: usize,
    progress: &Progress,
) -> Result<(Vec<ComparedRun>, Vec<ComparedWithFirst>), EngineError> {
    let runs = folders.iter().map(|path| ComparedRun::open(path));
    let mut runs = runs.collect::<Result<Vec<_>, EngineError>>()?;
    let names: Vec<String> = runs.iter().map(|run| run.name.clone()).collect();
    for run in &mut runs {
        // Runs with equal names are identified by their paths.
        if names.iter().filter(|name| **name == run.name).count() > 1 {
            run.name = run.path.display().to_string();
        }
    }
    let (first, others) = (&runs[0], &runs[1..]);
    others.iter().try_for_each(|other| first.check_same_images(other))?;
    let split = if first.config.eval.train_set { Split::Train } else { Split::Val };
    let data = DataSet::open(&first.config, split, progress)?;
    let set = EvaluationSet::new(&first.config, data);
    let with_first = |other: &ComparedRun| {
        let resampled = (samples, progress);
        let scores = IouType::ALL.map(|kind| first.paired_scores(other, kind, &set, resampled));
        let scores = scores.into_iter().filter_map(Result::transpose);
        let scores = scores.collect::<Result<Vec<_>, EngineError>>()?;
        let mut keys = first.config.differences(&other.config)?;
        // `train.name` only repeats the name of the run directory.
        keys.retain(|difference| difference.key != "train.name");
        Ok(ComparedWithFirst { keys, scores })
    };
    let compared = others.iter().map(with_first).collect::<Result<Vec<_>, EngineError>>()?;
    Ok((runs, compared))
}

impl ComparedRun {
    /// Reads a run directory.
    ///
    /// # Errors
    /// A folder that is not a run, or a run without an evaluation.
    fn open(path: &Path) -> Result<Self, EngineError> {
        RunDir::open(path)?;
        let read = |file: &str| {
            let file = path.join(file);
            std::fs::read_to_string(&file).map_err(crate::run_dir::io(&file))
        };
        let report: Value = serde_json::from_str(&read("report.json")?).map_err(|fault| {
            let file = path.join("report.json");
            EngineError::Usage(format!("{} is not a run report: {fault}", file.display()))
        })?;
        if report["data"]["val"]["key"].as_str().is_none_or(str::is_empty) {
            let path = path.display();
            return Err(EngineError::Usage(format!(
                "{path} has no validation data, so it cannot be compared"
            )));
        }
        if report["evaluated_step"].as_u64().is_none() {
            let path = path.display();
            return Err(EngineError::Usage(format!(
                "{path} was never evaluated: it has no scores"
            )));
        }
        let records = read("metrics.jsonl")?;
        let records = records.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let config = Config::load(path.join("config.toml"), &[])?;
        let name = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let name = name.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Ok(Self { name, path: path.to_path_buf(), config, report, records })
    }

    /// Checks that both runs were scored on the same images.
    fn check_same_images(&self, other: &Self) -> Result<(), EngineError> {
        let key = |run: &Self| run.report["data"]["val"]["key"].as_str().map(str::to_string);
        let is_same = key(self).zip(key(other)).is_some_and(|(a, b)| is_same_data(&a, &b));
        if is_same && self.config.eval.max_images == other.config.eval.max_images {
            return Ok(());
        }
        let describe = |run: &Self| {
            let (val, most) = (&run.report["data"]["val"], run.config.eval.max_images);
            let some = if most > 0 { format!("the first {most} of ") } else { String::new() };
            let store = val["path"].as_str().unwrap_or("unknown");
            format!("{} on {some}the {} images of {store}", run.path.display(), val["images"])
        };
        Err(EngineError::Usage(format!(
            "these runs were scored on different data, so their scores cannot be compared: {}, {}; \
             `onegraph eval --run RUN --set data.val_store=DIR` prints the scores of a run on data \
             that you choose",
            describe(self),
            describe(other)
        )))
    }

    /// Compares one IoU type of both runs; `None` if one of them lacks it.
    fn paired_scores(
        &self,
        other: &Self,
        kind: IouType,
        set: &EvaluationSet,
        (samples, progress): (usize, &Progress),
    ) -> Result<Option<Comparison>, EngineError> {
        let (Some(ours), Some(theirs)) = (self.results(kind, set)?, other.results(kind, set)?)
        else {
            return Ok(None);
        };
        let (run, images) = (&other.name, counted(set.images().len(), "image"));
        progress
            .say(&format!("comparing {kind} of {run}: {samples} bootstrap resamples of {images}"));
        let bar = progress.bar("resampling", samples as u64);
        let compared = compare(set.truth()?, ours, theirs, samples, &|| bar.inc(1))?;
        bar.finish_and_clear();
        for (run, i) in [(self, 0), (other, 1)] {
            run.check_is_reported(kind, compared.stats[0].scores[i])?;
        }
        Ok(Some(compared))
    }

    /// Checks that the stored detections belong to the reported evaluation. If a completed run was
    /// resumed and then interrupted, they are older.
    fn check_is_reported(&self, kind: IouType, found: Option<f64>) -> Result<(), EngineError> {
        let reported = self.report[kind.name()]["AP"].as_f64();
        let apart = found.zip(reported).map_or(0.0, |(found, reported)| (found - reported).abs());
        if apart <= SAME_AP {
            return Ok(());
        }
        let (run, step) = (self.path.display(), &self.report["evaluated_step"]);
        Err(EngineError::Usage(format!(
            "the detections in {run}/inference/{kind}.json are not those of step {step}, which \
             report.json describes; write them with `onegraph eval --run \
             {run}/checkpoints/step_{step:0>8} --out {run}/inference`",
            step = step.to_string()
        )))
    }

    /// The stored detections of the last evaluation; `None` if the model lacks this IoU type.
    fn results(&self, kind: IouType, set: &EvaluationSet) -> Result<Option<Results>, EngineError> {
        if !self.report[kind.name()].is_object() {
            return Ok(None);
        }
        let file = self.path.join(format!("inference/{kind}.json"));
        if !file.is_file() {
            let (file, run) = (file.display(), self.path.display());
            return Err(EngineError::Usage(format!(
                "there is no {file}, which a run writes at its end; write it with `onegraph eval \
                 --run {run} --out {run}/inference`"
            )));
        }
        // An empty list is valid: the model detected nothing.
        let is_empty = std::fs::read(&file).is_ok_and(|bytes| bytes.trim_ascii() == b"[]");
        let results = match is_empty {
            true => Results::from_detections(&[], set.truth()?, kind)?,
            false => Results::from_file(&file, set.truth()?, Some(kind))?,
        };
        Ok(Some(results))
    }
}

/// The conclusion about AP, in one line.
pub(crate) fn verdict(scores: &Comparison, [first, second]: [&str; 2]) -> String {
    let ap = &scores.stats[0];
    let shape = scores.iou_type.shape();
    let (Some(difference), Some([low, high])) = (ap.difference(), ap.interval) else {
        return format!("{shape} AP is undefined");
    };
    let meaning = match (ap.is_certain(), difference > 0.0) {
        (false, _) => "no significant difference on these images".to_string(),
        (true, true) => format!("{second} is better"),
        (true, false) => format!("{first} is better"),
    };
    let images = counted(scores.images, "image");
    format!("{shape} AP {difference:+.3} (95 % {low:+.3} to {high:+.3}, {images}): {meaning}")
}
