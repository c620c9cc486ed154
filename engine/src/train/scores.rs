//! Evaluations of a run: their journal entries, and the targets.

use std::time::Instant;

use configs::Train;
use dali::score::Summary;
use image::RgbImage;
use serde_json::json;

use super::journal::Journal;
use crate::draw::{picture, picture_of_truth, sheet};
use crate::error::EngineError;
use crate::evaluate::{Evaluation, Evaluator, ImageDetections};

/// Minimum score of drawn detections.
pub(super) const DRAWN_SCORE: f32 = 0.5;
/// Images of each evaluation that the event file shows.
const LOGGED_IMAGES: usize = 4;

/// Evaluates a run.
#[derive(Debug)]
pub(super) struct Scores {
    pub(super) evaluator: Evaluator,
}

impl Scores {
    /// Evaluates with `evaluator`.
    pub(super) fn new(evaluator: Evaluator) -> Self {
        Self { evaluator }
    }

    /// Scores what was found after `step`, and records the scores. The evaluation began at
    /// `started`.
    pub(super) fn score(
        &mut self,
        step: u64,
        found: &[ImageDetections],
        started: Instant,
        journal: &mut Journal,
    ) -> Result<Evaluation, EngineError> {
        let evaluation = self.evaluator.score(found)?;
        let seconds = started.elapsed().as_secs_f64();
        let mut line = json!({"step": step, "eval_seconds": seconds});
        let mut text = format!("step {step}: evaluated in {seconds:.1} s");
        for (name, summary) in evaluation.summaries() {
            line[name] = stats_json(summary);
            line[name]["classes"] = classes_json(summary);
            text += &format!("  {name} AP {:.3} AP50 {:.3}", summary.stats[0], summary.stats[1]);
        }
        journal.say(&text);
        journal.evaluation(step, &line, evaluation.summaries());
        journal.picture(step, &self.picture(&evaluation)?)?;
        Ok(evaluation)
    }

    /// The first images, a row each: with their objects, and with their detections.
    fn picture(&self, evaluation: &Evaluation) -> Result<RgbImage, EngineError> {
        let data = self.evaluator.data();
        let names: Vec<String> = data.categories().into_iter().map(|(name, _)| name).collect();
        let shown = self.evaluator.images().iter().take(LOGGED_IMAGES);
        let draw = |&image: &usize| {
            let (truth, found) = self.evaluator.compare(image, evaluation)?;
            let pixels = self.evaluator.load(image)?;
            let truth = picture_of_truth(&pixels, &truth, &names);
            Ok([truth, picture(&pixels, &found, &names, DRAWN_SCORE)])
        };
        let pictures = shown.map(draw).collect::<Result<Vec<_>, EngineError>>()?;
        Ok(sheet(pictures.as_flattened(), 2))
    }
}

/// AP by class name; undefined ones are null.
fn classes_json(summary: &Summary) -> serde_json::Value {
    let classes = summary.per_category.iter();
    classes.map(|(name, ap)| (name.clone(), defined(*ap))).collect()
}

fn defined(value: f64) -> serde_json::Value {
    if value < 0.0 { serde_json::Value::Null } else { value.into() }
}

/// Whether the config sets targets and all are met.
pub(super) fn targets_reached(train: &Train, evaluation: &Evaluation) -> bool {
    let met = |target: Option<f64>, summary: Option<&Summary>| {
        target.map(|t| summary.is_some_and(|s| s.ap() >= t))
    };
    let box_met = met(train.target_box, evaluation.bbox.as_ref());
    let mask_met = met(train.target_mask, evaluation.segm.as_ref());
    let asked = box_met.is_some() || mask_met.is_some();
    asked && box_met.unwrap_or(true) && mask_met.unwrap_or(true)
}

/// The twelve numbers under COCO's names; undefined ones are null.
pub(super) fn stats_json(summary: &Summary) -> serde_json::Value {
    summary.named().into_iter().map(|(name, value)| (name.to_string(), defined(value))).collect()
}
