//! Writes `report.json` and `report.html`, with a run's state and results.

use std::sync::Arc;
use std::time::Instant;

use crate::config::{BestMetric, Config};
use score::IouType;
use serde_json::{Value, json};

use super::background::Background;
use super::evaluation_report::EvaluationReport;
use super::journal::Journal;
use super::options::Outcome;
use super::totals::{Totals, of_records};
use crate::checkpoint::hex_digest;
use crate::compact_json::compact_json;
use crate::dataset::DataSet;
use crate::error::EngineError;
use crate::page::{Page, REFRESH};
use crate::provenance;
use crate::run_dir::RunDir;
use crate::runtime::Backend;

const JSON: &str = "report.json";
const HTML: &str = "report.html";
/// New name of a page from an older version, which embeds its pictures.
const OLDER_HTML: &str = "report_older.html";

/// The state of a run.
#[derive(Debug, Clone, Copy)]
pub(super) enum State {
    /// It is training, unless its process was killed after the report was written.
    Training,
    /// Its losses are non-finite.
    Diverged,
    /// It has ended.
    Ended(Outcome),
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Training => "training",
            State::Diverged => "diverged",
            State::Ended(Outcome::Done) => "done",
            State::Ended(Outcome::TargetReached) => "target_reached",
            State::Ended(Outcome::NoImprovement) => "no_improvement",
            State::Ended(Outcome::Interrupted) => "interrupted",
        }
    }
}

/// The data of a report that stay the same during a session.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    pub(super) config: &'a Config,
    /// The resolved config.
    pub(super) config_toml: &'a str,
    pub(super) backend: &'a Backend,
    /// The training data and its identity; `val` is the same for the validation data.
    pub(super) train: (&'a DataSet, &'a str),
    pub(super) val: Option<(&'a DataSet, &'a str)>,
}

/// Writes a run's report on rank 0: after each evaluation, every [`REFRESH`], and at the end.
#[derive(Debug)]
pub(super) struct Report {
    /// The run directory; `None` on ranks other than 0.
    run: Option<RunDir>,
    pub(super) totals: Totals,
    /// The fields of `report.json` that do not change in a session.
    facts: Value,
    best_metric: BestMetric,
    config_toml: String,
    evaluation: Option<Arc<EvaluationReport>>,
    writing: Option<Background<Result<(), EngineError>>>,
    /// Time at which writing the last report started.
    begun: Instant,
}

impl Report {
    /// Continues the report of earlier sessions, if `run` has one, but drops an evaluation after
    /// `steps_done`, which will be repeated.
    pub(super) fn open(
        run: Option<&RunDir>,
        steps_done: u64,
        facts: &Facts<'_>,
        journal: &mut Journal,
    ) -> Self {
        let earlier = run.map(|run| std::fs::read_to_string(run.join(JSON)).unwrap_or_default());
        let earlier: Value = serde_json::from_str(&earlier.unwrap_or_default()).unwrap_or_default();
        let mut evaluation = EvaluationReport::of_earlier(&earlier, steps_done);
        if let (Some(run), Some(evaluation)) = (run, &mut evaluation)
            && evaluation.mark_pictures()
            && std::fs::rename(run.join(HTML), run.join(OLDER_HTML)).is_ok()
        {
            journal.say(&format!("the older page, with its pictures, is kept as {OLDER_HTML}"));
        }
        let totals = Totals::new();
        let commands = earlier["commands"].as_array().into_iter().flatten();
        let commands = commands.filter_map(|command| command.as_str().map(str::to_string));
        let facts_json = json!({
            "total_steps": facts.config.train.steps,
            "started": earlier["started"].as_str().unwrap_or(totals.started()),
            "commands": commands.chain([provenance::command()]).collect::<Vec<_>>(),
            "device": facts.backend.name(),
            "config_sha256": hex_digest(facts.config_toml.as_bytes()),
            "data": { "train": set_json(facts.train), "val": facts.val.map(set_json) },
        });
        Self {
            run: run.cloned(),
            totals,
            facts: facts_json,
            best_metric: facts.config.train.best_metric,
            config_toml: facts.config_toml.to_string(),
            evaluation: evaluation.map(Arc::new),
            writing: None,
            begun: Instant::now(),
        }
    }

    /// Sets the evaluation that the report shows from now on.
    pub(super) fn show(&mut self, evaluation: EvaluationReport) {
        self.evaluation = Some(Arc::new(evaluation));
    }

    /// The per-class table of this session's last reported evaluation.
    pub(super) fn class_table(&self) -> Option<&str> {
        let evaluation = self.evaluation.as_ref().map(|evaluation| evaluation.classes.as_str());
        evaluation.filter(|text| !text.is_empty())
    }

    /// Starts a separate thread that writes the report after `steps_done` steps.
    ///
    /// # Errors
    /// The thread cannot be created.
    pub(super) fn begin(
        &mut self,
        state: State,
        steps_done: u64,
        journal: &mut Journal,
    ) -> Result<(), EngineError> {
        self.finish(journal);
        self.begun = Instant::now();
        let draft = self.draft(state, steps_done);
        let begin = |draft: Draft| Background::start("report", move || draft.write());
        self.writing = draft.map(begin).transpose()?;
        Ok(())
    }

    /// Writes the report after `steps_done` steps, and waits for it.
    ///
    /// # Errors
    /// Files that cannot be written.
    pub(super) fn write(
        &mut self,
        state: State,
        steps_done: u64,
        journal: &mut Journal,
    ) -> Result<(), EngineError> {
        self.finish(journal);
        self.draft(state, steps_done).map_or(Ok(()), Draft::write)
    }

    /// True if the last report is older than [`REFRESH`], and no report is being written.
    pub(super) fn is_due(&self) -> bool {
        self.run.is_some() && self.writing.is_none() && self.begun.elapsed() >= REFRESH
    }

    /// True if writing the report has completed or failed.
    pub(super) fn is_ready(&self) -> bool {
        self.writing.as_ref().is_some_and(Background::is_ready)
    }

    /// Waits for the report being written, if any. An error is printed as a warning.
    pub(super) fn finish(&mut self, journal: &mut Journal) {
        if let Some(Err(fault)) = self.writing.take().map(Background::join) {
            journal.say(&format!("warning: no report: {fault}"));
        }
    }

    /// The data for the files as of now; `None` on ranks other than 0.
    fn draft(&self, state: State, steps_done: u64) -> Option<Draft> {
        let run = self.run.clone()?;
        let mut json = json!({
            "state": state.name(),
            "steps": steps_done,
            "last_session": self.totals.json(),
            "target_reached": matches!(state, State::Ended(Outcome::TargetReached)),
        });
        extend(&mut json, self.facts.clone());
        extend(&mut json, provenance::facts());
        Some(Draft {
            run,
            json,
            evaluation: self.evaluation.clone(),
            best_metric: self.best_metric,
            config_toml: self.config_toml.clone(),
        })
    }
}

/// The data for the files, except the records of `metrics.jsonl`, which are read when the files are
/// written.
#[derive(Debug)]
struct Draft {
    run: RunDir,
    /// The fields of `report.json`, except the fields of the evaluation and of the records.
    json: Value,
    evaluation: Option<Arc<EvaluationReport>>,
    best_metric: BestMetric,
    config_toml: String,
}

impl Draft {
    /// Writes the files; a file that refers to others is written after them. If pictures cannot be
    /// written, the scores still are.
    ///
    /// # Errors
    /// Files that cannot be written.
    fn write(self) -> Result<(), EngineError> {
        let Self { run, json: mut report, evaluation, best_metric, config_toml } = self;
        let records = records(&run);
        extend(&mut report, of_records(&records));
        report["best"] = best(&records, best_metric);
        let mut drawn = Ok(());
        if let Some(evaluation) = &evaluation {
            drawn = evaluation.write_pictures(&run);
            extend(&mut report, evaluation.json.clone());
        }
        run.write(JSON, compact_json(&report).as_bytes())?;
        let (folder, config_toml) = (run.path(), config_toml.as_str());
        let page = Page { run: folder, report: &report, records: &records, config_toml };
        run.write(HTML, page.html().as_bytes())?;
        if let Some(evaluation) = &evaluation {
            evaluation.remove_other_pictures(&run);
        }
        drawn
    }
}

/// Adds the fields of one object to another.
fn extend(report: &mut Value, part: Value) {
    let (Some(report), Value::Object(part)) = (report.as_object_mut(), part) else {
        unreachable!("both are objects")
    };
    report.extend(part);
}

/// The evaluation with the best score of `metric` among the records; of equal scores, the first.
fn best(records: &[Value], metric: BestMetric) -> Value {
    let is_asked = |kind: &&str| metric.kind().is_none_or(|asked| asked == *kind);
    let score = |record: &Value| {
        let mut kinds = IouType::ALL.iter().rev().map(|kind| kind.name()).filter(is_asked);
        let kind = kinds.find(|kind| record[*kind].is_object())?;
        Some((kind, record[kind]["AP"].as_f64()?))
    };
    let mut best: Option<(&Value, &str, f64)> = None;
    for record in records {
        if let Some((kind, ap)) = score(record)
            && best.is_none_or(|(.., most)| ap > most)
        {
            best = Some((record, kind, ap));
        }
    }
    let Some((record, metric, _)) = best else { return Value::Null };
    let of = |kind: &str| match &record[kind] {
        Value::Object(stats) => json!({"AP": stats.get("AP"), "AP50": stats.get("AP50")}),
        _ => Value::Null,
    };
    let mut json = json!({"metric": metric, "step": record["step"]});
    for kind in IouType::ALL {
        let scores = of(kind.name());
        // Missing box and mask scores are null; missing keypoint scores are omitted.
        if kind != IouType::Keypoints || !scores.is_null() {
            json[kind.name()] = scores;
        }
    }
    json
}

/// Path, size and identity of a data set; the identity is a hash of classes, images and objects.
fn set_json((data, identity): (&DataSet, &str)) -> Value {
    let stores = data.store.stores().map(|store| {
        let path = store.path();
        std::path::absolute(path).unwrap_or(path.to_path_buf()).display().to_string()
    });
    json!({
        "path": stores.collect::<Vec<_>>().join(" + "),
        "images": data.images.len(),
        "classes": data.num_classes(),
        "key": identity,
    })
}

/// The records of `metrics.jsonl`; lines that are not JSON are skipped.
fn records(run: &RunDir) -> Vec<Value> {
    let text = std::fs::read_to_string(run.join("metrics.jsonl")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn best_evaluation_is_first_with_highest_score() {
        let scored = |step: u64, bbox: f64, segm: f64| {
            let of = |ap: f64| json!({"AP": ap, "AP50": ap, "AR1": 0.0});
            json!({"step": step, "bbox": of(bbox), "segm": of(segm)})
        };
        let records = [
            json!({"step": 1, "loss": 2.0}),
            scored(10, 0.5, 0.1),
            scored(20, 0.2, 0.3),
            scored(30, 0.4, 0.3),
        ];
        let found = best(&records, BestMetric::Auto);
        assert_eq!((&found["step"], &found["metric"]), (&20.into(), &"segm".into()));
        assert_eq!((&found["bbox"]["AP"], &found["segm"]["AP50"]), (&0.2.into(), &0.3.into()));
        assert_eq!(best(&records, BestMetric::Box)["step"], 10);
        let boxes = [json!({"step": 4, "bbox": {"AP": 0.25}})];
        assert_eq!(best(&boxes, BestMetric::Auto)["metric"], "bbox");
        assert!(best(&boxes, BestMetric::Mask).is_null() && best(&[], BestMetric::Auto).is_null());
    }
}
