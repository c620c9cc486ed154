//! Scores of a run's evaluations: journal entries, and comparison with the targets.

use std::time::Instant;

use crate::config::Train;
use image::RgbImage;
use score::Summary;
use serde_json::{Value, json};

use super::evaluation_report::{DRAWN_SCORE, EvaluationReport, defined, stats_json};
use super::journal::{EncodedPicture, Journal};
use super::validation::ValLosses;
use crate::draw::{picture, picture_of_truth, sheet};
use crate::error::EngineError;
use crate::evaluate::{Evaluation, EvaluationSet, Gathered};

/// Number of images of each evaluation in the event file.
const LOGGED_IMAGES: usize = 4;
/// Number of images in COCO val2017.
const COCO_VAL_IMAGES: f64 = 5000.0;

/// Scores and pictures of an evaluation, computed from its detections on a separate thread.
#[derive(Debug)]
pub(super) struct Scores {
    pub(super) evaluation: Evaluation,
    /// Validation losses, if requested.
    losses: ValLosses,
    /// Seconds from the start of the evaluation to its scores.
    pub(super) seconds: f64,
    /// The first images, each with annotated objects and with detections.
    pub(super) picture: EncodedPicture,
    /// The evaluation's part of the report.
    pub(super) report: EvaluationReport,
}

impl Scores {
    /// Scores the detections after `step`. The evaluation began at `started`; the report shows up
    /// to `draw_images` images.
    ///
    /// # Errors
    /// Detections that cannot be decoded or are invalid; images that cannot be read.
    pub(super) fn new(
        set: &EvaluationSet,
        (found, losses): (Gathered, ValLosses),
        step: u64,
        started: Instant,
        draw_images: usize,
    ) -> Result<Self, EngineError> {
        let evaluation = set.score(&found.images()?)?;
        let seconds = started.elapsed().as_secs_f64();
        let picture = EncodedPicture::new(&compared(set, &evaluation)?)?;
        let report = EvaluationReport::new(step, set, draw_images, &evaluation)?;
        Ok(Self { evaluation, losses, seconds, picture, report })
    }

    /// Writes the scores of `step`, and the time `wait` that training waited, to the journal.
    pub(super) fn record(&self, step: u64, wait: Wait, journal: &mut Journal) {
        let seconds = self.seconds;
        let mut line = json!({"step": step, "eval_seconds": seconds});
        line["waited_seconds"] = wait.seconds.into();
        if let Some(projected) = wait.on_8_gpus {
            line["waited_seconds_of_5000_images_on_8_gpus"] = projected.into();
        }
        let mut text = format!("step {step}: evaluated in {seconds:.1} s");
        for (name, summary) in self.evaluation.summaries() {
            line[name] = stats_json(summary);
            line[name]["classes"] = classes_json(summary);
            text += &format!("  {name} AP {:.3} AP50 {:.3}", summary.stats[0], summary.stats[1]);
        }
        for (name, value) in &self.evaluation.numbers {
            line[name] = (*value).into();
            text += &format!("  {name} {value:.4}");
        }
        for (name, value) in &self.losses {
            line[name] = (*value).into();
        }
        if let Some((name, value)) = self.losses.first() {
            text += &format!("  {name} {value:.4}");
        }
        journal.say(&format!("{text}  {}", wait.describe()));
        journal.evaluation(step, &line, self.evaluation.summaries());
        journal.numbers(step, &self.losses);
        journal.numbers(step, &self.evaluation.numbers);
        journal.picture(step, &self.picture);
    }
}

/// The time that training waited for an evaluation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Wait {
    /// Seconds.
    pub(super) seconds: f64,
    /// Projected seconds for 5,000 images on 8 GPUs of this kind; `None` on the CPU.
    pub(super) on_8_gpus: Option<f64>,
}

impl Wait {
    /// A wait of `seconds` for `images` images on `ranks` devices.
    pub(super) fn new(seconds: f64, images: usize, ranks: usize, is_device: bool) -> Self {
        let share = (COCO_VAL_IMAGES / images.max(1) as f64) * (ranks as f64 / 8.0);
        Self { seconds, on_8_gpus: is_device.then_some(seconds * share) }
    }

    /// The text at the end of a log line.
    fn describe(self) -> String {
        let here = format!("training waited {:.2} s", self.seconds);
        self.on_8_gpus
            .map_or(here.clone(), |there| format!("{here} (5,000 images on 8 GPUs: {there:.2} s)"))
    }
}

/// Draws the first images, one per row: left with annotated objects, right with detections.
fn compared(set: &EvaluationSet, evaluation: &Evaluation) -> Result<RgbImage, EngineError> {
    let names: Vec<String> = set.data().categories().into_iter().map(|(name, _)| name).collect();
    let shown = set.images().iter().take(LOGGED_IMAGES);
    let draw = |&image: &usize| {
        let (truth, found) = set.compare(image, evaluation)?;
        let pixels = set.load(image)?;
        let truth = picture_of_truth(&pixels, &truth, &names);
        Ok([truth, picture(&pixels, &found, &names, DRAWN_SCORE)])
    };
    let pictures = shown.map(draw).collect::<Result<Vec<_>, EngineError>>()?;
    Ok(sheet(pictures.as_flattened(), 2))
}

/// AP by class name; undefined values are null.
fn classes_json(summary: &Summary) -> Value {
    let classes = summary.per_category.iter();
    classes.map(|(name, ap)| (name.clone(), defined(*ap))).collect()
}

/// True if the config sets targets and all are met.
pub(super) fn targets_reached(train: &Train, evaluation: &Evaluation) -> bool {
    let ap_of = |kind: &str| {
        let mut summaries = evaluation.summaries();
        summaries.find(|(name, _)| *name == kind).map(|(_, summary)| summary.ap())
    };
    are_met(train, ap_of)
}

/// Like [`targets_reached`], for an evaluation's record in `metrics.jsonl`.
pub(super) fn recorded_targets_reached(train: &Train, record: &Value) -> bool {
    are_met(train, |kind| record[kind]["AP"].as_f64())
}

fn are_met(train: &Train, ap: impl Fn(&str) -> Option<f64>) -> bool {
    let mut targets = train.targets().peekable();
    targets.peek().is_some()
        && targets.all(|(kind, target)| ap(kind).is_some_and(|ap| ap >= target))
}
