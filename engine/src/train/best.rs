//! Tracks a run's best scores: selects the checkpoints to keep, and detects when scores stop
//! improving.

use std::io::ErrorKind;

use crate::config::{BestMetric, Config};
use serde::{Deserialize, Serialize};

use crate::checkpoint;
use crate::dataset::is_same_data;
use crate::error::EngineError;
use crate::evaluate::Evaluation;
use crate::model::detector;
use crate::run_dir::RunDir;

const FILE: &str = "best.json";
/// `train.patience` counts evaluations only once a score reaches this value.
const LEAST: f64 = 0.001;

/// A score and its step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Score {
    step: u64,
    ap: f64,
}

/// Metric and data of a score; only scores with the same metric and data are compared.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Kind {
    /// The resolved metric, never `auto`.
    metric: BestMetric,
    /// Identity of the evaluated data, `:`, and the number of scored images or `all`.
    data: String,
}

impl Kind {
    fn is_same(&self, other: &Self) -> bool {
        self.metric == other.metric && is_same_data(&self.data, &other.data)
    }
}

/// `best.json`.
#[derive(Debug, Serialize, Deserialize)]
struct BestFile {
    /// Metric and data of the scores; absent in files of older versions.
    #[serde(flatten)]
    kind: Option<Kind>,
    /// The best score.
    #[serde(flatten)]
    best: Score,
    /// Its checkpoint, relative to the run directory; none if `train.keep_best` is 0.
    #[serde(default)]
    checkpoint: Option<String>,
    /// The scores whose checkpoints are kept, best first.
    #[serde(default)]
    kept: Vec<Score>,
    /// Number of evaluations since the best score.
    #[serde(default)]
    without_improvement: u64,
    /// Step of the last evaluation.
    #[serde(default)]
    last_step: u64,
}

/// The best scores of the run so far.
#[derive(Debug)]
pub(super) struct Best {
    kind: Kind,
    patience: u64,
    keep: usize,
    best: Option<Score>,
    /// Scores whose checkpoints are kept, best first.
    kept: Vec<Score>,
    without_improvement: u64,
    last_step: u64,
}

impl Best {
    /// The state before the first evaluation; `data` is the identity of the data that the run
    /// evaluates on.
    pub(super) fn new(config: &Config, data: &str) -> Self {
        let metric = match config.train.best_metric {
            BestMetric::Auto => {
                let last = detector(&config.model).kinds_of_scores().last().map(|kind| kind.name());
                let named = [BestMetric::Box, BestMetric::Mask, BestMetric::Keypoint].into_iter();
                named.rev().find(|metric| metric.kind() == last).unwrap_or(BestMetric::Box)
            }
            metric => metric,
        };
        let (patience, keep) = (config.train.patience, config.train.keep_best);
        let images = match config.eval.max_images {
            0 => "all".to_string(),
            most => most.to_string(),
        };
        let kind = Kind { metric, data: format!("{data}:{images}") };
        Self {
            kind,
            patience,
            keep,
            best: None,
            kept: vec![],
            without_improvement: 0,
            last_step: 0,
        }
    }

    /// Reads `best.json`. Drops scores of steps after `steps_done`, as these steps run again, and
    /// checkpoints that no longer exist. If the scores were measured with a different metric or
    /// data set, drops all of them and returns a message.
    ///
    /// # Errors
    /// [`EngineError::Usage`] for an invalid file: ignoring it would cause the best checkpoints to
    /// be removed as old ones.
    pub(super) fn resume(
        &mut self,
        run: &RunDir,
        steps_done: u64,
    ) -> Result<Option<String>, EngineError> {
        let path = run.join(FILE);
        let text = match std::fs::read(&path) {
            Err(fault) if fault.kind() == ErrorKind::NotFound => return Ok(None),
            text => text.map_err(crate::run_dir::io(&path))?,
        };
        let saved = serde_json::from_slice::<BestFile>(&text).map_err(|fault| {
            EngineError::Usage(format!(
                "{} is invalid ({fault}): restore it, or remove it to compare only scores from \
                 here on",
                path.display()
            ))
        })?;
        if saved.kind.as_ref().is_some_and(|kind| !kind.is_same(&self.kind)) {
            let step = saved.best.step;
            self.write(run)?;
            return Ok(Some(format!(
                "the best score so far, of step {step}, was measured with a different metric or \
                 data set: only scores from here on are compared"
            )));
        }
        let is_past = |score: &Score| score.step <= steps_done;
        self.kept = saved.kept.iter().copied().filter(is_past).collect();
        self.kept.retain(|score| run.join(&checkpoint::folder(score.step)).is_dir());
        let best = Some(saved.best).filter(is_past);
        self.without_improvement = if best.is_some() { saved.without_improvement } else { 0 };
        self.last_step = saved.last_step;
        self.best = best.or(self.kept.first().copied());
        if self.kept != saved.kept || self.best != Some(saved.best) {
            self.write(run)?;
        }
        Ok(None)
    }

    /// Records the scores of `step`, whose checkpoint exists. Repeating the evaluation of a step
    /// does not count twice.
    ///
    /// # Errors
    /// [`EngineError::Io`] if `best.json` cannot be written.
    pub(super) fn record(
        &mut self,
        step: u64,
        evaluation: &Evaluation,
        run: &RunDir,
    ) -> Result<(), EngineError> {
        let Some(ap) = self.ap(evaluation) else { return Ok(()) };
        let score = Score { step, ap };
        self.without_improvement += u64::from(step != self.last_step);
        self.last_step = step;
        if self.best.is_none_or(|best| ap > best.ap || best.step == step) {
            (self.best, self.without_improvement) = (Some(score), 0);
        }
        // Patience does not count while the model finds almost nothing.
        if self.best.is_some_and(|best| best.ap < LEAST) {
            self.without_improvement = 0;
        }
        self.kept.retain(|kept| kept.step != step);
        // If scores are equal, the earlier one stays first.
        let place = self.kept.partition_point(|kept| kept.ap >= ap);
        self.kept.insert(place, score);
        self.kept.truncate(self.keep);
        self.write(run)
    }

    /// Writes `best.json`; without scores, removes it, so that it cannot name a checkpoint that
    /// later gets different contents.
    fn write(&self, run: &RunDir) -> Result<(), EngineError> {
        let Some(best) = self.best else {
            return match std::fs::remove_file(run.join(FILE)) {
                Err(fault) if fault.kind() != ErrorKind::NotFound => {
                    Err(crate::run_dir::io(&run.join(FILE))(fault))
                }
                _ => Ok(()),
            };
        };
        let checkpoint = self.kept.first().map(|first| checkpoint::folder(first.step));
        let (kept, without_improvement) = (self.kept.clone(), self.without_improvement);
        let (kind, last_step) = (Some(self.kind.clone()), self.last_step);
        let saved = BestFile { kind, best, checkpoint, kept, without_improvement, last_step };
        let json = serde_json::to_vec(&saved).map_err(std::io::Error::other);
        run.write(FILE, &json.map_err(crate::run_dir::io(&run.join(FILE)))?)?;
        Ok(())
    }

    /// True if none of the last `train.patience` evaluations improved the best score.
    pub(super) fn is_exhausted(&self) -> bool {
        self.patience > 0 && self.without_improvement >= self.patience
    }

    /// Steps whose checkpoints are kept.
    pub(super) fn kept_steps(&self) -> Vec<u64> {
        self.kept.iter().map(|score| score.step).collect()
    }

    /// The value of the selected metric; `None` if it was not computed or is undefined.
    fn ap(&self, evaluation: &Evaluation) -> Option<f64> {
        let kind = self.kind.metric.kind();
        let mut summaries = evaluation.summaries();
        let summary = summaries.find(|(name, _)| Some(*name) == kind);
        summary.map(|(_, summary)| summary.ap()).filter(|ap| *ap >= 0.0)
    }
}

#[cfg(test)]
mod tests {
    use score::{IouType, Summary};

    use super::*;

    fn record(best: &mut Best, run: &RunDir, step: u64, ap: f64) {
        let mut stats = [0.0; 12];
        stats[0] = ap;
        let iou_type = IouType::Segm;
        let (undefined, per_category, notes) = (vec![], vec![], vec![]);
        let (stats, max_dets) = (stats.into(), 100);
        let summary = Summary { iou_type, max_dets, stats, undefined, per_category, notes };
        let scores = [(iou_type, summary)].into();
        let evaluation = Evaluation { scores, ..Evaluation::none() };
        std::fs::create_dir_all(run.join(&checkpoint::folder(step))).expect("a checkpoint");
        best.record(step, &evaluation, run).expect("written");
    }

    #[test]
    fn best_checkpoints_are_kept_and_patience_stops_run() {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let run = RunDir::create(parent.path(), "run").expect("a run");
        let mut config = Config::default();
        (config.train.keep_best, config.train.patience) = (2, 2);
        let new = || Best::new(&config, "data");
        let mut best = new();
        for (step, ap) in [(10, 0.2), (20, 0.5), (30, 0.3)] {
            record(&mut best, &run, step, ap);
        }
        assert_eq!(best.kept_steps(), [20, 30]);
        assert!(!best.is_exhausted());
        let mut resumed = new();
        assert_eq!(resumed.resume(&run, 30).expect("read"), None);
        record(&mut resumed, &run, 40, 0.5);
        assert_eq!(resumed.kept_steps(), [20, 40], "an equal score is no improvement");
        assert!(resumed.is_exhausted());
        std::fs::remove_dir_all(run.join(&checkpoint::folder(20))).expect("it is there");
        let mut without = new();
        without.resume(&run, 40).expect("read");
        assert_eq!(without.kept_steps(), [40], "a checkpoint that is gone is not kept");
        let mut slow = Best::new(&config, "slow data");
        for (step, ap) in [(10, 0.0), (20, 0.0), (30, 0.0004), (40, 0.0), (50, 0.002), (60, 0.0)] {
            record(&mut slow, &run, step, ap);
            assert!(!slow.is_exhausted(), "nothing was found before step 50");
        }
        record(&mut slow, &run, 70, 0.001);
        assert!(slow.is_exhausted());
        record(&mut resumed, &run, 40, 0.5);
        let mut other = Best::new(&config, "other data");
        let note = other.resume(&run, 40).expect("read");
        assert!(note.is_some_and(|note| note.contains("step 20")));
        assert_eq!((other.kept_steps(), other.best), (vec![], None), "scores of another kind");
        assert!(!run.join(FILE).exists(), "its checkpoint is no longer kept");
        record(&mut resumed, &run, 40, 0.5);
        let mut earlier = new();
        earlier.resume(&run, 15).expect("read");
        assert_eq!((earlier.kept_steps(), earlier.best), (vec![], None), "steps run again");
        assert!(!run.join(FILE).exists(), "it would name their checkpoints");
        std::fs::write(run.join(FILE), "").expect("a file");
        let fault = new().resume(&run, 40).expect_err("not ours").to_string();
        assert!(fault.contains("best.json") && fault.contains("restore it"), "{fault}");
    }
}
