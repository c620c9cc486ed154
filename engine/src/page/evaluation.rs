//! The part of a report page that shows an evaluation: precision-recall curves, classes, errors,
//! confusion, pictures.

use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use score::{Analysis, ImageScores, IouType, LabelDoubt};
use serde::Deserialize;
use serde_json::Value;

use super::chart::{Axes, Line, chart};
use super::tables;
use crate::picture::escape;

/// Maximum number of classes with a precision-recall curve.
const DRAWN_CLASSES: usize = 8;

/// The HTML of the evaluation in `report`, if there is one; its pictures are in the run directory
/// `run`.
pub(super) fn evaluation(report: &Value, run: &Path) -> String {
    let (mut html, mut on) = (String::new(), IouType::Bbox);
    let (mut images, mut doubts) = (&Value::Null, &Value::Null);
    for kind in IouType::ALL {
        let json = &report["analysis"][kind.name()];
        let Some(analysis) = analysis(json) else { continue };
        // An analysis of keypoints has neither images nor label doubts.
        if !analysis.confusion.is_empty() {
            (on, images, doubts) = (kind, &json["images"], &json["label_doubts"]);
        }
        html += &section(report["evaluated_step"].as_u64().unwrap_or(0), kind, &analysis);
    }
    html + &label_doubts(doubts, run) + &pictures(images, on.shapes(), run)
}

/// Parses an analysis of `report.json`; `None` if it is invalid.
fn analysis(json: &Value) -> Option<Analysis> {
    let analysis = Analysis::deserialize(json).ok()?;
    let (side, matrix) = (analysis.classes.len() + 1, &analysis.confusion);
    let is_square = matrix.len() == side && matrix.iter().all(|row| row.len() == side);
    (is_square || matrix.is_empty()).then_some(analysis)
}

/// The HTML of one IoU type: precision-recall curves, classes, confusion and errors.
fn section(step: u64, kind: IouType, analysis: &Analysis) -> String {
    let iou = format!("{} {}", kind.shape(), kind.measure());
    let mut title = format!("{} ({kind})", kind.shapes());
    title[..1].make_ascii_uppercase();
    let unit = Some((0.0, 1.0));
    let axes = Axes { x_name: "recall", y_name: "precision", x: unit, y: unit };
    let thresholds = [(0, "0.50"), (5, "0.75"), (9, "0.95")].map(|(i, iou)| {
        let precision = analysis.precision.get(i).map_or(&[][..], Vec::as_slice);
        over_recall(format!("{} {iou}", kind.measure()), precision)
    });
    let (by_class, drawn, note) = weakest(analysis, kind);
    let mut charts = chart("Precision-recall curve, mean over classes", axes, &thresholds)
        + &chart(&by_class, axes, &drawn);
    if charts.is_empty() {
        charts = "<p>Undefined: no object is annotated.</p>".into();
    }
    format!(
        "<h2>{title}, after step {step}</h2>\n<div class=\"charts\">{charts}</div>\n{note}\
         <h3>Classes</h3>\n\
         <p>Best threshold: the minimum score with the highest F1 at {iou} 0.50, and precision and \
         recall there.</p>\n{}\n{}",
        tables::classes(analysis, kind),
        mistakes(analysis, &iou)
    )
}

/// The HTML of errors and confusion; empty for an analysis without them.
fn mistakes(analysis: &Analysis, iou: &str) -> String {
    if analysis.confusion.is_empty() {
        return String::new();
    }
    format!(
        "<h3>Error types (TIDE)</h3>\n\
         <p>All detections count, with any score: correct from {iou} 0.5, background below 0.1. \
         AP50 lost: the increase of AP50, the mean over classes, if this error type were fixed. \
         Each type is fixed on its own; a missed object is fixed by removing it from the ground \
         truth, so a class without detections gains nothing.</p>\n{}\n\
         <h3>Confusion matrix</h3>\n\
         <p>Rows: annotated class. Columns: detected class. Only detections with a score and \
         {iou} of at least 0.5 count; classes without objects and such detections are omitted.\
         </p>\n{}\n",
        tables::errors(analysis),
        tables::confusion(analysis)
    )
}

fn over_recall(name: String, precision: &[f64]) -> Line {
    let points = precision.iter().enumerate().map(|(i, p)| (i as f64 / 100.0, *p)).collect();
    Line { name, points }
}

/// Title and lines of the chart with a curve per class, and a note on omitted classes. Classes
/// whose AP50 is 0 are omitted, as their curves would coincide with the axis.
fn weakest(analysis: &Analysis, kind: IouType) -> (String, Vec<Line>, String) {
    let ap50 = |class: &score::ClassScores| class.ap50.unwrap_or(0.0);
    let zero = analysis.classes.iter().filter(|class| class.ap50 == Some(0.0)).count();
    let mut classes: Vec<_> = analysis.classes.iter().filter(|class| ap50(class) > 0.0).collect();
    classes.sort_by(|a, b| ap50(a).total_cmp(&ap50(b)));
    let title = match classes.len() > DRAWN_CLASSES {
        true => format!(
            "Precision-recall curves, {} 0.50, the {DRAWN_CLASSES} weakest of {} classes",
            kind.measure(),
            classes.len()
        ),
        false => format!("Precision-recall curves, {} 0.50, by class", kind.measure()),
    };
    let note = match zero {
        0 => String::new(),
        1 => "<p>A class whose AP50 is 0 is not drawn.</p>\n".to_string(),
        _ => format!("<p>{zero} classes whose AP50 is 0 are not drawn.</p>\n"),
    };
    let drawn = classes.iter().take(DRAWN_CLASSES);
    (title, drawn.map(|c| over_recall(c.name.clone(), &c.precision)).collect(), note)
}

/// The HTML of the worst images: annotated objects next to detections, if the image files exist.
fn pictures(images: &Value, on: &str, run: &Path) -> String {
    let figures = images.as_array().into_iter().flatten().filter_map(|image| figure(image, run));
    let figures: String = figures.collect();
    if figures.is_empty() {
        return figures;
    }
    format!(
        "<h2>Worst images</h2>\n<p>Left: annotated objects. Right: detections with a score of at \
         least 0.5. Sorted by the F1 of these detections, on {on} at IoU 0.5.</p>\n\
         <div class=\"pairs\">{figures}</div>\n"
    )
}

/// The HTML of labels that confident detections contradict: a list, and pictures.
fn label_doubts(doubts: &Value, run: &Path) -> String {
    let doubts: Vec<&Value> = doubts.as_array().into_iter().flatten().collect();
    if doubts.is_empty() {
        return String::new();
    }
    let text = |doubt: &Value| {
        let LabelDoubt { image_id, annotated_class, detected_class, score } =
            LabelDoubt::deserialize(doubt).ok()?;
        let annotated = match annotated_class {
            Some(class) => format!("annotated as {}", escape(&class)),
            None => "nothing annotated".into(),
        };
        let (file, detected) = (file_name(doubt), escape(&detected_class));
        Some(format!("{file} (image {image_id}): {detected} at {score:.2}, {annotated}"))
    };
    let figures = doubts.iter().filter_map(|doubt| pair(doubt, run, &text(doubt)?));
    let figures: String = figures.collect();
    let rows = doubts.iter().filter_map(|doubt| Some(format!("<li>{}</li>", text(doubt)?)));
    let rows: String = rows.collect();
    format!(
        "<h2>Possible label errors</h2>\n<p>Detections with a score of at least 0.8 that no \
         annotation confirms: an object may be missing from the annotations, or carry the wrong \
         class, or the model is wrong. The most confident come first. Left: annotated. Right: \
         detected.</p>\n\
         <div class=\"pairs\">{figures}</div>\n<details><summary>All {}</summary><ol>{rows}</ol>\
         </details>\n",
        doubts.len()
    )
}

fn figure(image: &Value, run: &Path) -> Option<String> {
    let ImageScores { image_id, found, spurious, missed } = ImageScores::deserialize(image).ok()?;
    let file = file_name(image);
    let text =
        format!("{file} (image {image_id}): {found} found, {missed} missed, {spurious} spurious");
    pair(image, run, &text)
}

fn file_name(image: &Value) -> String {
    escape(image["file_name"].as_str().unwrap_or_default())
}

/// The two pictures of an image above a text; `None` if they were not drawn or the files are
/// missing.
fn pair(image: &Value, run: &Path, text: &str) -> Option<String> {
    let data_url = |key: &str| {
        let jpeg = std::fs::read(run.join(image[key].as_str()?)).ok()?;
        Some(format!("data:image/jpeg;base64,{}", BASE64_STANDARD.encode(jpeg)))
    };
    Some(format!(
        "<figure class=\"pair\"><div><img alt=\"annotated\" src=\"{}\">\
         <img alt=\"detected\" src=\"{}\"></div><figcaption>{text}</figcaption></figure>\n",
        data_url("annotated")?,
        data_url("detected")?
    ))
}

#[cfg(test)]
pub(super) mod tests {
    use score::{ClassScores, ErrorKind};

    use super::*;

    pub(in super::super) fn class(name: &str, ap50: Option<f64>) -> ClassScores {
        let precision = if ap50.is_some() { vec![1.0, 0.5] } else { vec![] };
        let (name, objects) = (name.to_string(), usize::from(ap50.is_some()));
        ClassScores {
            name,
            objects,
            ap: ap50,
            ap50,
            ap75: ap50,
            ar: ap50,
            precision,
            best_threshold: None,
        }
    }

    pub(in super::super) fn analysis_of(classes: Vec<ClassScores>) -> Analysis {
        let confusion = vec![vec![1; classes.len() + 1]; classes.len() + 1];
        let [kind, meaning] = ["Miss", "not detected"].map(String::from);
        let errors = vec![ErrorKind { kind, meaning, count: 3, ap_lost: 0.0 }];
        Analysis {
            classes,
            precision: vec![vec![]; 10],
            confusion,
            errors,
            images: vec![],
            label_doubts: vec![],
        }
    }

    #[test]
    fn weakest_classes_exclude_undetected_ones() {
        let mut classes: Vec<_> = (0..10).map(|i| class(&format!("zero{i}"), Some(0.0))).collect();
        classes.push(class("none", None));
        classes.extend([class("good", Some(0.9)), class("weak", Some(0.1))]);
        let (title, lines, note) = weakest(&analysis_of(classes), IouType::Segm);
        let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["weak", "good"]);
        assert!(title.ends_with("by class") && note.contains("10 classes whose AP50 is 0"));
    }

    #[test]
    fn unannotated_class_draws_no_curve() {
        let html = section(7, IouType::Segm, &analysis_of(vec![class("none", None)]));
        assert!(html.contains("Undefined") && !html.contains("<polyline"), "{html}");
        assert!(html.contains("after step 7") && html.contains("mask IoU 0.5"));
    }

    #[test]
    fn suspicious_labels_are_listed_and_drawn() {
        let run = tempfile::tempdir().expect("a folder");
        std::fs::write(run.path().join("a.jpg"), "left").expect("written");
        std::fs::write(run.path().join("d.jpg"), "right").expect("written");
        let doubts = serde_json::json!([
            {"image_id": 7, "file_name": "<7>.jpg", "annotated_class": "dog",
             "detected_class": "cat", "score": 0.95, "annotated": "a.jpg", "detected": "d.jpg"},
            {"image_id": 8, "file_name": "8.jpg", "annotated_class": null,
             "detected_class": "cat", "score": 0.81},
        ]);
        let html = label_doubts(&doubts, run.path());
        for words in [
            "&lt;7&gt;.jpg (image 7): cat at 0.95, annotated as dog</figcaption>",
            "<li>8.jpg (image 8): cat at 0.81, nothing annotated</li>",
            "All 2</summary>",
        ] {
            assert!(html.contains(words), "{words}\n{html}");
        }
        assert_eq!(html.matches("<figure").count(), 1, "only one was drawn");
        assert_eq!(label_doubts(&serde_json::json!([]), run.path()), "");
    }

    #[test]
    fn analysis_with_truncated_confusion_matrix_is_ignored() {
        let ours = analysis_of(vec![class("cat", Some(0.5)), class("none", None)]);
        let mut json = serde_json::json!(ours);
        assert_eq!(analysis(&json), Some(ours));
        json["confusion"][1] = serde_json::json!([1]);
        assert_eq!(analysis(&json), None, "a matrix that is cut");
    }
}
