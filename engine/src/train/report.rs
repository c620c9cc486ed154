//! `report.json` and `report.html`: how a run stands, and how it ended.

use std::collections::HashMap;

use configs::{BestMetric, Config};
use dali::score::{Analysis, class_table};
use serde_json::{Value, json};

use super::options::Outcome;
use super::resume::identity_of;
use super::scores::{DRAWN_SCORE, stats_json};
use super::totals::{Totals, of_records};
use crate::checkpoint::hex_digest;
use crate::compact_json::compact_json;
use crate::dataset::DataSet;
use crate::draw::{picture_at, picture_of_truth_at};
use crate::error::EngineError;
use crate::evaluate::{Evaluation, Evaluator};
use crate::page::{self, Page, Pair};
use crate::provenance;
use crate::run_dir::RunDir;

const JSON: &str = "report.json";
const HTML: &str = "report.html";
/// Most images on the page.
const MAX_PAIRS: usize = 12;
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
    /// Holds the validation data.
    pub(super) evaluator: &'a Evaluator,
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

/// The last evaluation.
#[derive(Debug)]
struct Shown {
    step: u64,
    /// The fields of `report.json` named in [`OF_EVALUATION`].
    json: Value,
    /// Its part of the page.
    html: String,
    /// A table of classes for the log.
    classes: String,
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
        let shown = step.zip(page::evaluation_of(&page)).map(|(step, html)| Shown {
            step,
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

    /// Writes both files. `evaluation` is that of the last step, if it has one; else the last one
    /// is shown.
    ///
    /// # Errors
    /// Files that cannot be written; an evaluation that cannot be analysed.
    pub(super) fn write(
        &mut self,
        run: &RunDir,
        totals: &Totals,
        facts: &Facts<'_>,
        evaluation: Option<&Evaluation>,
    ) -> Result<(), EngineError> {
        let step = facts.steps_done;
        if let Some(evaluation) = evaluation
            && self.shown.as_ref().is_none_or(|s| s.step != step || s.classes.is_empty())
        {
            self.shown = Some(Shown::new(step, facts, evaluation)?);
        }
        let records = records(run);
        let report = self.json(totals, facts, &records);
        run.write(JSON, compact_json(&report).as_bytes())?;
        let name = run.path().file_name().map(|name| name.to_string_lossy().into_owned());
        let page = Page {
            name: &name.unwrap_or_default(),
            report: &report,
            records: &records,
            evaluation: self.shown.as_ref().map_or("", |shown| &shown.html),
            config_toml: facts.config_toml,
        };
        run.write(HTML, page.html().as_bytes())?;
        Ok(())
    }

    /// The classes of the evaluation that this session has reported last, as lines.
    pub(super) fn class_table(&self) -> Option<&str> {
        self.shown.as_ref().map(|shown| shown.classes.as_str()).filter(|text| !text.is_empty())
    }

    fn json(&self, totals: &Totals, facts: &Facts<'_>, records: &[Value]) -> Value {
        let ((train, identity), val) = (facts.data, facts.evaluator.data());
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
                "val": set_json(val, &identity_of(val)),
            },
            "best": best(records, facts.config.train.best_metric),
        });
        let parts = [
            Some(of_records(records)),
            Some(provenance::facts()),
            self.shown.as_ref().map(|shown| shown.json.clone()),
        ];
        for part in parts.into_iter().flatten() {
            let (Some(report), Value::Object(part)) = (report.as_object_mut(), part) else {
                unreachable!("both are objects")
            };
            report.extend(part);
        }
        report
    }
}

impl Shown {
    fn new(step: u64, facts: &Facts<'_>, evaluation: &Evaluation) -> Result<Self, EngineError> {
        let analyses = facts.evaluator.analyze(evaluation)?;
        let data = facts.evaluator.data();
        let images = facts.evaluator.images().iter().map(|&position| {
            let index = data.images[position];
            (data.store.image(index).image_id, position)
        });
        let images: HashMap<u64, usize> = images.collect();
        let file_name = |id: u64| images.get(&id).map(|i| data.store.file_name(data.images[*i]));
        let mut json = json!({"evaluated_step": step, "analysis": {}});
        let mut classes = String::new();
        for ((name, summary), analysis) in evaluation.summaries().zip(&analyses) {
            json[name] = stats_json(summary);
            json["analysis"][name] = json!(analysis);
            let listed = json["analysis"][name]["images"].as_array_mut();
            for (image, scores) in listed.into_iter().flatten().zip(&analysis.images) {
                image["file_name"] = file_name(scores.image_id).into();
            }
            classes += &format!("{name} by class\n{}\n", class_table(&analysis.classes));
        }
        let pairs = match analyses.last() {
            Some(analysis) => pairs(analysis, &images, facts, evaluation)?,
            None => Vec::new(),
        };
        let html = page::evaluation(step, evaluation, &analyses, &pairs)?;
        Ok(Self { step, json, html, classes })
    }
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

/// The worst images, annotated and detected. `images` are positions in the data by image id.
fn pairs(
    analysis: &Analysis,
    images: &HashMap<u64, usize>,
    facts: &Facts<'_>,
    evaluation: &Evaluation,
) -> Result<Vec<Pair>, EngineError> {
    let evaluator = facts.evaluator;
    let data = evaluator.data();
    let names: Vec<String> = data.categories().into_iter().map(|(name, _)| name).collect();
    let worst = analysis.images.iter().take(facts.config.eval.draw_images.min(MAX_PAIRS));
    let mut pairs = Vec::new();
    for scores in worst {
        let Some(&image) = images.get(&scores.image_id) else { continue };
        let (truth, found) = evaluator.compare(image, evaluation)?;
        let pixels = evaluator.load(image)?;
        pairs.push(Pair {
            scores: *scores,
            file_name: data.store.file_name(data.images[image]).to_string(),
            truth: picture_of_truth_at(&pixels, &truth, &names, page::PICTURE_SIDE),
            found: picture_at(&pixels, &found, &names, DRAWN_SCORE, page::PICTURE_SIDE),
        });
    }
    Ok(pairs)
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
