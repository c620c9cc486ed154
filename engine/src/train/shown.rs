//! An evaluation as a report shows it: numbers, analysis, and the worst images.

use std::collections::HashMap;

use dali::score::{Analysis, Summary, short_class_table};
use serde_json::{Value, json};

use crate::draw::{picture_at, picture_of_truth_at};
use crate::error::EngineError;
use crate::evaluate::{Evaluation, EvaluationSet};
use crate::page::{self, Pair};

/// Minimum score of drawn detections.
pub(super) const DRAWN_SCORE: f32 = 0.5;
/// Most images on the page.
const MAX_PAIRS: usize = 12;

/// The last evaluation.
#[derive(Debug)]
pub(super) struct Shown {
    /// Its fields of `report.json`.
    pub(super) json: Value,
    /// Its part of the page.
    pub(super) html: String,
    /// A table of classes for the log.
    pub(super) classes: String,
}

impl Shown {
    /// Analyses an evaluation after `step`, with up to `draw_images` of its worst images.
    ///
    /// # Errors
    /// An evaluation that cannot be analysed; images that cannot be read.
    pub(super) fn new(
        step: u64,
        set: &EvaluationSet,
        draw_images: usize,
        evaluation: &Evaluation,
    ) -> Result<Self, EngineError> {
        let analyses = set.analyze(evaluation)?;
        let data = set.data();
        let images = set.positions();
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
            classes += &format!("{name} by class\n{}\n", short_class_table(&analysis.classes));
        }
        let most = draw_images.min(MAX_PAIRS);
        let pairs = match analyses.last() {
            Some(analysis) => pairs(analysis, &images, set, most, evaluation)?,
            None => Vec::new(),
        };
        let html = page::evaluation(step, evaluation, &analyses, &pairs)?;
        Ok(Self { json, html, classes })
    }
}

/// The worst images, at most `most`, annotated and detected. `images` are positions in the data by
/// image id.
fn pairs(
    analysis: &Analysis,
    images: &HashMap<u64, usize>,
    set: &EvaluationSet,
    most: usize,
    evaluation: &Evaluation,
) -> Result<Vec<Pair>, EngineError> {
    let data = set.data();
    let names: Vec<String> = data.categories().into_iter().map(|(name, _)| name).collect();
    let mut pairs = Vec::new();
    for scores in analysis.images.iter().take(most) {
        let Some(&image) = images.get(&scores.image_id) else { continue };
        let (truth, found) = set.compare(image, evaluation)?;
        let pixels = set.load(image)?;
        pairs.push(Pair {
            scores: *scores,
            file_name: data.store.file_name(data.images[image]).to_string(),
            truth: picture_of_truth_at(&pixels, &truth, &names, page::PICTURE_SIDE),
            found: picture_at(&pixels, &found, &names, DRAWN_SCORE, page::PICTURE_SIDE),
        });
    }
    Ok(pairs)
}

/// The twelve numbers under COCO's names; undefined ones are null.
pub(super) fn stats_json(summary: &Summary) -> serde_json::Value {
    summary.named().into_iter().map(|(name, value)| (name.to_string(), defined(value))).collect()
}

/// A score; null if it is undefined.
pub(super) fn defined(value: f64) -> serde_json::Value {
    if value < 0.0 { serde_json::Value::Null } else { value.into() }
}
