//! The part of a page that shows an evaluation: precision over recall, classes, errors, confusion,
//! pictures.

use std::fmt::Write;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use dali::score::{Analysis, ImageScores};
use image::RgbImage;
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

use super::chart::{Axes, Line, chart};
use super::{escape, tables};
use crate::error::EngineError;
use crate::evaluate::Evaluation;

/// Long side of a picture, pixels: twice what the page takes, for dense screens.
pub(crate) const PICTURE_SIDE: u32 = 560;
/// Of JPEG; text stays sharp.
const PICTURE_QUALITY: u8 = 85;
/// Most classes whose precision is drawn.
const DRAWN_CLASSES: usize = 8;
/// Around the part of a page that shows an evaluation.
const MARKS: [&str; 2] = ["<!-- evaluation -->\n", "<!-- end of the evaluation -->\n"];

/// An image of the page: annotated objects beside detections.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) scores: ImageScores,
    pub(crate) file_name: String,
    pub(crate) truth: RgbImage,
    pub(crate) found: RgbImage,
}

/// The part of a page that shows the evaluation after `step`; one analysis for each of its
/// summaries; the worst images first.
///
/// # Errors
/// A picture that cannot be encoded.
pub(crate) fn evaluation(
    step: u64,
    evaluation: &Evaluation,
    analyses: &[Analysis],
    pairs: &[Pair],
) -> Result<String, EngineError> {
    let mut html = MARKS[0].to_string();
    let mut on = "boxes";
    for ((kind, _), analysis) in evaluation.summaries().zip(analyses) {
        on = if kind == "bbox" { "boxes" } else { "masks" };
        html += &section(step, kind, on, analysis);
    }
    Ok(html + &pictures(pairs, on)? + MARKS[1])
}

/// The part of `page` that shows an evaluation, if it has one.
pub(crate) fn evaluation_of(page: &str) -> Option<&str> {
    let start = page.find(MARKS[0])?;
    let end = start + page[start..].find(MARKS[1])? + MARKS[1].len();
    Some(&page[start..end])
}

/// Classes, precision over recall, confusion and errors of boxes or of masks.
fn section(step: u64, kind: &str, on: &str, analysis: &Analysis) -> String {
    let (title, iou) = match kind {
        "bbox" => ("Boxes (bbox)", "box IoU"),
        _ => ("Masks (segm)", "mask IoU"),
    };
    let unit = Some((0.0, 1.0));
    let axes = Axes { x_name: "recall", y_name: "precision", x: unit, y: unit };
    let thresholds = [(0, "0.50"), (5, "0.75"), (9, "0.95")].map(|(i, iou)| {
        let precision = analysis.precision.get(i).map_or(&[][..], Vec::as_slice);
        over_recall(format!("IoU {iou}"), precision)
    });
    let (by_class, drawn, note) = weakest(analysis);
    let mut charts = chart("Precision over recall, mean over classes", axes, &thresholds)
        + &chart(&by_class, axes, &drawn);
    if charts.is_empty() {
        charts = "<p>Undefined: no object is annotated.</p>".into();
    }
    format!(
        "<h2>{title}, after step {step}</h2>\n<div class=\"charts\">{charts}</div>\n{note}\
         <h3>Classes</h3>\n{}\n\
         <h3>Errors by kind (TIDE)</h3>\n\
         <p>Every detection counts, whatever its score: right from {iou} 0.5, nothing there below \
         0.1. AP50 lost: how much higher AP50, the mean over classes, would be without errors of \
         this kind. Each kind is mended alone, and an object that is not detected is mended by \
         not counting it: a class of which nothing is found gains nothing by that.</p>\n{}\n\
         <h3>Confusion matrix</h3>\n\
         <p>Objects by what they are detected as. Only detections that score at least 0.5 count, \
         from {iou} 0.5; classes without objects and such detections are left out.</p>\n{}\n",
        tables::classes(analysis, on),
        tables::errors(analysis),
        tables::confusion(analysis)
    )
}

fn over_recall(name: String, precision: &[f64]) -> Line {
    let points = precision.iter().enumerate().map(|(i, p)| (i as f64 / 100.0, *p)).collect();
    Line { name, points }
}

/// Title and lines of the chart by class, and a sentence about classes that it leaves out. A class
/// whose AP50 is 0 is a line along the axis.
fn weakest(analysis: &Analysis) -> (String, Vec<Line>, String) {
    let ap50 = |class: &dali::score::ClassScores| class.ap50.unwrap_or(0.0);
    let zero = analysis.classes.iter().filter(|class| class.ap50 == Some(0.0)).count();
    let mut classes: Vec<_> = analysis.classes.iter().filter(|class| ap50(class) > 0.0).collect();
    classes.sort_by(|a, b| ap50(a).total_cmp(&ap50(b)));
    let title = match classes.len() > DRAWN_CLASSES {
        true => format!(
            "Precision over recall, IoU 0.50, the {DRAWN_CLASSES} weakest of {} classes",
            classes.len()
        ),
        false => "Precision over recall, IoU 0.50, by class".to_string(),
    };
    let note = match zero {
        0 => String::new(),
        1 => "<p>A class whose AP50 is 0 is not drawn.</p>\n".to_string(),
        _ => format!("<p>{zero} classes whose AP50 is 0 are not drawn.</p>\n"),
    };
    let drawn = classes.iter().take(DRAWN_CLASSES);
    (title, drawn.map(|c| over_recall(c.name.clone(), &c.precision)).collect(), note)
}

/// Annotated objects beside detections.
fn pictures(pairs: &[Pair], on: &str) -> Result<String, EngineError> {
    if pairs.is_empty() {
        return Ok(String::new());
    }
    let mut html = format!(
        "<h2>Images, the worst first</h2>\n<p>Left: annotated objects. Right: detections that \
         score at least 0.5. The worst image has the lowest F1 (twice what is found, over objects \
         and detections) of these detections, on {on} at IoU 0.5.</p>\n<div class=\"pairs\">"
    );
    for Pair { scores, file_name, truth, found } in pairs {
        let ImageScores { image_id, found: hits, spurious, missed } = scores;
        // Writing to a string cannot fail.
        let _ = writeln!(
            html,
            "<figure class=\"pair\"><div><img alt=\"annotated\" src=\"{}\">\
             <img alt=\"detected\" src=\"{}\"></div><figcaption>{} (image {image_id}): {hits} \
             found, {missed} missed, {spurious} spurious</figcaption></figure>",
            data_url(truth)?,
            data_url(found)?,
            escape(file_name)
        );
    }
    Ok(html + "</div>\n")
}

fn data_url(picture: &RgbImage) -> Result<String, EngineError> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, PICTURE_QUALITY);
    encoder.set_sampling_factor(SamplingFactor::R_4_4_4);
    let side = |pixels: u32| u16::try_from(pixels).unwrap_or(u16::MAX);
    let (width, height) = (side(picture.width()), side(picture.height()));
    encoder.encode(picture.as_raw(), width, height, ColorType::Rgb).map_err(|e| {
        EngineError::Io { path: "a picture".into(), source: std::io::Error::other(e) }
    })?;
    Ok(format!("data:image/jpeg;base64,{}", BASE64_STANDARD.encode(bytes)))
}

#[cfg(test)]
mod tests {
    use dali::score::{ClassScores, ErrorKind};

    use super::*;

    fn class(name: &str, ap50: Option<f64>) -> ClassScores {
        let precision = if ap50.is_some() { vec![1.0, 0.5] } else { vec![] };
        let (name, objects) = (name.to_string(), usize::from(ap50.is_some()));
        ClassScores { name, objects, ap: ap50, ap50, ap75: ap50, ar: ap50, precision }
    }

    fn analysis(classes: Vec<ClassScores>) -> Analysis {
        let confusion = vec![vec![1; classes.len() + 1]; classes.len() + 1];
        let errors =
            vec![ErrorKind { kind: "Miss", meaning: "not detected", count: 3, ap_lost: 0.0 }];
        Analysis { classes, precision: vec![vec![]; 10], confusion, errors, images: vec![] }
    }

    #[test]
    fn the_weakest_classes_are_those_that_are_found_at_all() {
        let mut classes: Vec<_> = (0..10).map(|i| class(&format!("zero{i}"), Some(0.0))).collect();
        classes.push(class("none", None));
        classes.extend([class("good", Some(0.9)), class("weak", Some(0.1))]);
        let (title, lines, note) = weakest(&analysis(classes));
        let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["weak", "good"]);
        assert!(title.ends_with("by class") && note.contains("10 classes whose AP50 is 0"));
    }

    #[test]
    fn nothing_annotated_draws_no_line() {
        let html = section(7, "segm", "masks", &analysis(vec![class("none", None)]));
        assert!(html.contains("Undefined") && !html.contains("<polyline"), "{html}");
        assert!(html.contains("after step 7") && html.contains("mask IoU 0.5"));
    }

    #[test]
    fn the_evaluation_of_a_page_is_found_again() {
        let none = Evaluation::none();
        let part = evaluation(3, &none, &[], &[]).expect("no pictures");
        let page = format!("<h1>x</h1>\n{part}<pre>config</pre>");
        assert_eq!(evaluation_of(&page), Some(part.as_str()));
        assert_eq!(evaluation_of("<h1>x</h1>"), None);
    }
}
