//! `report.json` and `report.html`: how a run stands, and how it ended.

use configs::{BestMetric, Config};
use serde_json::{Value, json};

use super::options::Outcome;
use super::shown::Shown;
use super::totals::{Totals, of_records};
use crate::checkpoint::hex_digest;
use crate::compact_json::compact_json;
use crate::dataset::DataSet;
use crate::error::EngineError;
use crate::evaluate::EvaluationSet;
use crate::page::{self, Page};
use crate::provenance;
use crate::run_dir::RunDir;

const JSON: &str = "report.json";
const HTML: &str = "report.html";
/// The fields of `report.json` that an evaluation fills.
const OF_EVALUATION: [&str; 4] = ["evaluated_step", "bbox", "segm", "analysis"];

/// How a run stands.
#[derive(Debug, Clone, Copy)]
pub(super) enum State {
    /// It trains, unless its process was killed since the report was written.
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

/// What a report tells beside totals and scores.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    pub(super) state: State,
    pub(super) steps_done: u64,
    pub(super) device: String,
    pub(super) config: &'a Config,
    /// The resolved config.
    pub(super) config_toml: &'a str,
    /// The training data and its identity.
    pub(super) data: (&'a DataSet, &'a str),
    /// What the run is evaluated on, and its identity.
    pub(super) set: &'a EvaluationSet,
    pub(super) val_identity: &'a str,
}

/// Writes the report of a run, again and again.
#[derive(Debug)]
pub(super) struct Report {
    /// Start of the first session.
    started: Option<String>,
    /// The commands of all sessions, this one the last.
    commands: Vec<String>,
    shown: Option<Shown>,
}

impl Report {
    /// A report that goes on from what earlier sessions wrote, if any; evaluations after
    /// `steps_done` come again.
    pub(super) fn new(run: &RunDir, steps_done: u64) -> Self {
        let text = std::fs::read_to_string(run.join(JSON)).unwrap_or_default();
        let earlier: Value = serde_json::from_str(&text).unwrap_or_default();
        let commands = earlier["commands"].as_array().into_iter().flatten();
        let commands = commands.filter_map(|command| command.as_str().map(str::to_string));
        let page = std::fs::read_to_string(run.join(HTML)).unwrap_or_default();
        let step = earlier["evaluated_step"].as_u64().filter(|step| *step <= steps_done);
        let shown = step.and(page::evaluation_of(&page)).map(|html| Shown {
            json: OF_EVALUATION
                .map(|key| (key.to_string(), earlier[key].clone()))
                .into_iter()
                .collect(),
            html: html.to_string(),
            classes: String::new(),
        });
        Self {
            started: earlier["started"].as_str().map(str::to_string),
            commands: commands.chain([provenance::command()]).collect(),
            shown,
        }
    }

    /// Shows this evaluation from now on.
    pub(super) fn show(&mut self, shown: Shown) {
        self.shown = Some(shown);
    }

    /// What the files of now say, for [`Draft::write`] on any thread.
    pub(super) fn draft(&self, run: &RunDir, totals: &Totals, facts: &Facts<'_>) -> Draft {
        Draft {
            run: run.clone(),
            json: self.json(totals, facts),
            best_metric: facts.config.train.best_metric,
            evaluation: self.shown.as_ref().map(|shown| shown.html.clone()).unwrap_or_default(),
            config_toml: facts.config_toml.to_string(),
        }
    }

    /// The classes of the evaluation that this session has reported last, as lines.
    pub(super) fn class_table(&self) -> Option<&str> {
        self.shown.as_ref().map(|shown| shown.classes.as_str()).filter(|text| !text.is_empty())
    }

    /// `report.json` without what [`Draft::write`] reads from the records.
    fn json(&self, totals: &Totals, facts: &Facts<'_>) -> Value {
        let ((train, identity), val) = (facts.data, facts.set.data());
        let mut report = json!({
            "state": facts.state.name(),
            "steps": facts.steps_done,
            "total_steps": facts.config.train.steps,
            "started": self.started.as_deref().unwrap_or(totals.started()),
            "last_session": totals.json(),
            "commands": self.commands,
            "device": facts.device,
            "target_reached": matches!(facts.state, State::Ended(Outcome::TargetReached)),
            "config_sha256": hex_digest(facts.config_toml.as_bytes()),
            "data": {
                "train": set_json(train, identity),
                "val": set_json(val, facts.val_identity),
            },
        });
        let parts =
            [Some(provenance::facts()), self.shown.as_ref().map(|shown| shown.json.clone())];
        parts.into_iter().flatten().for_each(|part| extend(&mut report, part));
        report
    }
}

/// What the files say but for the records of `metrics.jsonl`, which are read when they are written.
#[derive(Debug)]
pub(super) struct Draft {
    run: RunDir,
    json: Value,
    best_metric: BestMetric,
    /// The last evaluation's part of the page.
    evaluation: String,
    config_toml: String,
}

impl Draft {
    /// Writes both files.
    ///
    /// # Errors
    /// Files that cannot be written.
    pub(super) fn write(self) -> Result<(), EngineError> {
        let Self { run, json: mut report, best_metric, evaluation, config_toml } = self;
        let records = records(&run);
        extend(&mut report, of_records(&records));
        report["best"] = best(&records, best_metric);
        run.write(JSON, compact_json(&report).as_bytes())?;
        let name = run.path().file_name().map(|name| name.to_string_lossy().into_owned());
        let page = Page {
            name: &name.unwrap_or_default(),
            report: &report,
            records: &records,
            evaluation: &evaluation,
            config_toml: &config_toml,
        };
        run.write(HTML, page.html().as_bytes())?;
        Ok(())
    }
}

/// Adds the fields of one object to another.
fn extend(report: &mut Value, part: Value) {
    let (Some(report), Value::Object(part)) = (report.as_object_mut(), part) else {
        unreachable!("both are objects")
    };
    report.extend(part);
}

/// The evaluation with the best score of `metric` among the records, the first of equal ones.
fn best(records: &[Value], metric: BestMetric) -> Value {
    let kinds = match metric {
        BestMetric::Auto => &["segm", "bbox"][..],
        BestMetric::Box => &["bbox"],
        BestMetric::Mask => &["segm"],
    };
    let score = |record: &Value| {
        let kind = *kinds.iter().find(|kind| record[**kind].is_object())?;
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
    json!({"metric": metric, "step": record["step"], "bbox": of("bbox"), "segm": of("segm")})
}

/// Where a data set is, how large it is, and its identity: a hash over classes, images, objects.
fn set_json(data: &DataSet, identity: &str) -> Value {
    let path = data.store.path();
    json!({
        "path": std::path::absolute(path).unwrap_or(path.to_path_buf()),
        "images": data.images.len(),
        "classes": data.num_classes(),
        "key": identity,
    })
}

/// The records of `metrics.jsonl`; lines that are not JSON are left out.
fn records(run: &RunDir) -> Vec<Value> {
    let text = std::fs::read_to_string(run.join("metrics.jsonl")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_evaluation_is_the_first_of_the_highest() {
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
