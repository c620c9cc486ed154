//! The part of a report about an evaluation: metrics, analysis, and the worst images.

use score::{IouType, Summary, short_class_table};
use serde_json::{Value, json};

use crate::draw::{jpeg, picture_at, picture_of_truth_at};
use crate::error::EngineError;
use crate::evaluate::{Evaluation, EvaluationSet};
use crate::run_dir::RunDir;

/// Minimum score of drawn detections.
pub(super) const DRAWN_SCORE: f32 = 0.5;
/// Fields of `report.json` that an evaluation sets, in addition to one field per IoU type.
const KEYS: [&str; 3] = ["evaluated_step", "analysis", "pictures"];
/// Folder in the run directory with the pictures of the last evaluation.
const PICTURES: &str = "pictures";
/// Maximum number of worst images that are drawn.
const MAX_DRAWN: usize = 12;
/// Maximum number of images with suspicious labels that are drawn.
const MAX_DOUBTED: usize = 6;
/// Long side of a picture in pixels: twice its size on the page, for high-density screens.
const PICTURE_SIDE: u32 = 560;
/// JPEG quality, high enough for sharp text.
const PICTURE_QUALITY: u8 = 85;

/// An evaluation in the report.
#[derive(Debug, Clone)]
pub(super) struct EvaluationReport {
    /// Its fields of `report.json`.
    pub(super) json: Value,
    /// A table of class scores for the log; empty for an evaluation of an earlier session.
    pub(super) classes: String,
    /// JPEG files to write, by path in the run directory; empty for an evaluation of an earlier
    /// session, whose files exist.
    pictures: Vec<(String, Vec<u8>)>,
}

impl EvaluationReport {
    /// Analyses an evaluation after `step`. Draws up to `draw_images` of its worst images, and of
    /// its images with suspicious labels.
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
        let (data, positions) = (set.data(), set.positions());
        let mut json = json!({"evaluated_step": step, "analysis": {}, "pictures": PICTURES});
        let (mut classes, mut worst) = (String::new(), None);
        for ((name, summary), analysis) in evaluation.summaries().zip(&analyses) {
            json[name] = stats_json(summary);
            json["analysis"][name] = json!(analysis);
            for list in ["images", "label_doubts"] {
                for image in json["analysis"][name][list].as_array_mut().into_iter().flatten() {
                    let id = image["image_id"].as_u64();
                    let position = id.and_then(|id| positions.get(&id));
                    image["file_name"] =
                        position.map(|i| data.store.file_name(data.images[*i])).into();
                }
            }
            let table = short_class_table(&analysis.classes, summary.iou_type);
            classes += &format!("{name} by class\n{table}\n");
            // An analysis of keypoints has no images.
            if !analysis.confusion.is_empty() {
                worst = Some((name, analysis));
            }
        }
        let mut report = Self { json, classes, pictures: Vec::new() };
        // The page shows images of the last IoU type that has images.
        let Some((kind, analysis)) = worst else { return Ok(report) };
        let worst = analysis.images.iter().map(|scores| scores.image_id).enumerate();
        let mut doubted: Vec<(usize, u64)> = Vec::new();
        for (i, doubt) in analysis.label_doubts.iter().enumerate() {
            // An image with several suspicious labels is drawn once, for the most suspicious one.
            if doubted.iter().all(|(_, image)| *image != doubt.image_id) {
                doubted.push((i, doubt.image_id));
            }
        }
        let shown = worst.take(draw_images.min(MAX_DRAWN)).map(|(i, id)| ("images", i, id));
        let doubted = doubted.into_iter().take(draw_images.min(MAX_DOUBTED));
        for (list, i, id) in shown.chain(doubted.map(|(i, id)| ("label_doubts", i, id))) {
            let Some(&image) = positions.get(&id) else { continue };
            let entry = &mut report.json["analysis"][kind][list][i];
            for (what, jpeg) in draw(set, image, evaluation)? {
                let in_doubt = if list == "images" { "" } else { "doubt_" };
                let path = format!("{PICTURES}/step_{step:08}_{in_doubt}{:02}_{what}.jpg", i + 1);
                entry[what] = path.as_str().into();
                report.pictures.push((path, jpeg));
            }
        }
        Ok(report)
    }

    /// The evaluation in the `report` of an earlier session; `None` if its step is after
    /// `steps_done`, as that step is evaluated again.
    pub(super) fn of_earlier(report: &Value, steps_done: u64) -> Option<Self> {
        report["evaluated_step"].as_u64().filter(|step| *step <= steps_done)?;
        let keys = KEYS.into_iter().chain(IouType::ALL.map(IouType::name));
        let json = keys.map(|key| (key.to_string(), report[key].clone())).collect();
        Some(Self { json, classes: String::new(), pictures: Vec::new() })
    }

    /// Sets the folder of the pictures in the report. Returns true if the report is of an older
    /// version, which embedded the pictures in the page instead of writing files.
    pub(super) fn mark_pictures(&mut self) -> bool {
        std::mem::replace(&mut self.json["pictures"], PICTURES.into()).is_null()
    }

    /// Writes the pictures, before the report that refers to them.
    ///
    /// # Errors
    /// Files that cannot be written.
    pub(super) fn write_pictures(&self, run: &RunDir) -> Result<(), EngineError> {
        if !self.pictures.is_empty() {
            run.folder(PICTURES)?;
        }
        self.pictures.iter().try_for_each(|(path, jpeg)| run.write(path, jpeg).map(|_| ()))
    }

    /// Removes the pictures of earlier evaluations. Call it once no report refers to them.
    pub(super) fn remove_other_pictures(&self, run: &RunDir) {
        let ours = format!("step_{:08}_", self.json["evaluated_step"].as_u64().unwrap_or(0));
        for entry in std::fs::read_dir(run.join(PICTURES)).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("step_") && !name.starts_with(&ours) {
                // Errors are ignored: a remaining file only takes space.
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

/// JPEGs of the image at position `image` in the data, with annotated and with detected objects,
/// each with its key in the report.
fn draw(
    set: &EvaluationSet,
    image: usize,
    evaluation: &Evaluation,
) -> Result<[(&'static str, Vec<u8>); 2], EngineError> {
    let (truth, found) = set.compare(image, evaluation)?;
    let pixels = set.load(image)?;
    let names: Vec<String> = set.data().categories().into_iter().map(|(name, _)| name).collect();
    let truth = picture_of_truth_at(&pixels, &truth, &names, PICTURE_SIDE);
    let found = picture_at(&pixels, &found, &names, DRAWN_SCORE, PICTURE_SIDE);
    Ok([
        ("annotated", jpeg(&truth, PICTURE_QUALITY)?),
        ("detected", jpeg(&found, PICTURE_QUALITY)?),
    ])
}

/// The metrics under COCO's names; undefined metrics are null.
pub(super) fn stats_json(summary: &Summary) -> Value {
    summary.named().into_iter().map(|(name, value)| (name.to_string(), defined(value))).collect()
}

/// A score; null if it is undefined.
pub(super) fn defined(value: f64) -> Value {
    if value < 0.0 { Value::Null } else { value.into() }
}
