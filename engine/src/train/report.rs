//! `report.json` and `report.html`: the outcome of a run.

use std::time::Instant;

use dali::score::Analysis;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::scores::{DRAWN_SCORE, stats_json};
use crate::dataset::DataSet;
use crate::draw::{picture, picture_of_truth};
use crate::error::EngineError;
use crate::evaluate::{Evaluation, Evaluator};
use crate::metrics::{StepRecord, duration};
use crate::page::{Page, Pair};
use crate::provenance;
use crate::run_dir::RunDir;

/// Most images on the page.
const MAX_PAIRS: usize = 12;

/// What a session has done since it was opened; the earlier steps of a resumed run do not count.
#[derive(Debug)]
pub(super) struct Totals {
    started: Instant,
    train_seconds: f64,
    images: u64,
    steps: u64,
}

impl Totals {
    pub(super) fn new() -> Self {
        Self { started: Instant::now(), train_seconds: 0.0, images: 0, steps: 0 }
    }

    /// Records a step.
    pub(super) fn add(&mut self, record: &StepRecord) {
        self.train_seconds += record.step_seconds;
        self.images += record.images as u64;
        self.steps += 1;
    }

    /// The last line that a run prints.
    pub(super) fn describe(&self) -> String {
        format!(
            "{} steps in {}, {:.1} images/s while training",
            self.steps,
            duration(self.started.elapsed().as_secs_f64()),
            self.images_per_second(),
        )
    }

    fn images_per_second(&self) -> f64 {
        self.images as f64 / self.train_seconds.max(1e-9)
    }
}

/// The fields of `report.json` beside totals and scores.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    pub(super) steps_done: u64,
    pub(super) device: String,
    pub(super) target_reached: bool,
    /// The resolved config.
    pub(super) config_toml: &'a str,
    pub(super) draw_images: usize,
    /// The training data and its identity.
    pub(super) data: (&'a DataSet, &'a str),
    /// Holds the validation data.
    pub(super) evaluator: &'a Evaluator,
}

/// Writes `report.json` and `report.html`.
pub(super) fn write(
    run: &RunDir,
    totals: &Totals,
    facts: &Facts<'_>,
    evaluation: &Evaluation,
) -> Result<(), EngineError> {
    let analyses = facts.evaluator.analyze(evaluation)?;
    let report = report_json(totals, facts, evaluation, &analyses);
    let text = serde_json::to_vec_pretty(&report)
        .map_err(|e| EngineError::Usage(format!("report.json: {e}")))?;
    run.write("report.json", &text)?;
    let pairs = match analyses.last() {
        Some(analysis) => pairs(analysis, facts, evaluation)?,
        None => Vec::new(),
    };
    let name = run.path().file_name().map(|name| name.to_string_lossy().into_owned());
    let page = Page {
        name: &name.unwrap_or_default(),
        report: &report,
        records: &records(run),
        evaluation,
        analyses: &analyses,
        pairs: &pairs,
        config_toml: facts.config_toml,
    };
    run.write("report.html", page.html()?.as_bytes())?;
    Ok(())
}

fn report_json(
    totals: &Totals,
    facts: &Facts<'_>,
    evaluation: &Evaluation,
    analyses: &[Analysis],
) -> serde_json::Value {
    let digest = Sha256::digest(facts.config_toml.as_bytes());
    let (train, identity) = facts.data;
    let mut report = json!({
        "steps": facts.steps_done,
        "seconds": totals.started.elapsed().as_secs_f64(),
        "train_seconds": totals.train_seconds,
        "images_per_second": totals.images_per_second(),
        "device": facts.device,
        "target_reached": facts.target_reached,
        "config_sha256": digest.iter().map(|b| format!("{b:02x}")).collect::<String>(),
        "data": {
            "train": set_json(train, Some(identity)),
            "val": set_json(facts.evaluator.data(), None),
        },
        "analysis": {},
    });
    if let (Some(report), serde_json::Value::Object(origin)) =
        (report.as_object_mut(), provenance::facts())
    {
        report.extend(origin);
    }
    for ((name, summary), analysis) in evaluation.summaries().zip(analyses) {
        report[name] = stats_json(summary);
        report["analysis"][name] = json!(analysis);
    }
    report
}

/// Where a data set is, how large it is, and its identity: a hash over classes, images, objects.
fn set_json(data: &DataSet, identity: Option<&str>) -> serde_json::Value {
    let path = data.store.path();
    json!({
        "path": std::path::absolute(path).unwrap_or(path.to_path_buf()),
        "images": data.images.len(),
        "classes": data.num_classes(),
        "key": identity,
    })
}

/// The worst images, annotated and detected.
fn pairs(
    analysis: &Analysis,
    facts: &Facts<'_>,
    evaluation: &Evaluation,
) -> Result<Vec<Pair>, EngineError> {
    let evaluator = facts.evaluator;
    let data = evaluator.data();
    let names: Vec<String> = data.categories().into_iter().map(|(name, _)| name).collect();
    let position = |id: u64| data.images.iter().position(|i| data.store.image(*i).image_id == id);
    let worst = analysis.images.iter().take(facts.draw_images.min(MAX_PAIRS));
    let mut pairs = Vec::new();
    for scores in worst {
        let Some(image) = position(scores.image_id) else { continue };
        let (truth, found) = evaluator.compare(image, evaluation)?;
        let pixels = evaluator.load(image)?;
        pairs.push(Pair {
            scores: *scores,
            truth: picture_of_truth(&pixels, &truth, &names),
            found: picture(&pixels, &found, &names, DRAWN_SCORE),
        });
    }
    Ok(pairs)
}

/// The records of `metrics.jsonl`; lines that are not JSON are left out.
fn records(run: &RunDir) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(run.join("metrics.jsonl")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}
