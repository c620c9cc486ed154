//! `report.html`: a run on one page that needs nothing else: no script, no file, no network.

mod chart;
mod tables;

use std::fmt::Write;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use dali::score::{Analysis, ImageScores};
use image::RgbImage;
use serde_json::Value;

use crate::draw::png;
use crate::error::EngineError;
use crate::evaluate::Evaluation;

use chart::{Extent, Line, chart};

const STYLE: &str = include_str!("style.css");
/// Width of a picture on the page, pixels.
const PICTURE_WIDTH: u32 = 340;
/// Most classes whose precision is drawn.
const DRAWN_CLASSES: usize = 8;

/// An image of the page: annotated objects beside detections.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) scores: ImageScores,
    pub(crate) truth: RgbImage,
    pub(crate) found: RgbImage,
}

/// What a page shows.
#[derive(Debug)]
pub(crate) struct Page<'a> {
    /// The run's name.
    pub(crate) name: &'a str,
    /// `report.json`.
    pub(crate) report: &'a Value,
    /// The records of `metrics.jsonl`.
    pub(crate) records: &'a [Value],
    pub(crate) evaluation: &'a Evaluation,
    /// One per summary of the evaluation.
    pub(crate) analyses: &'a [Analysis],
    /// The worst images first.
    pub(crate) pairs: &'a [Pair],
    /// The resolved config.
    pub(crate) config_toml: &'a str,
}

impl Page<'_> {
    /// The page as HTML.
    ///
    /// # Errors
    /// A picture that cannot be encoded.
    pub(crate) fn html(&self) -> Result<String, EngineError> {
        let mut html = format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
             <title>{name}</title>\n<style>\n{STYLE}</style></head><body>\n<h1>{name}</h1>\n",
            name = escape(self.name)
        );
        html += &self.tiles();
        html += &self.curves();
        for ((name, _), analysis) in self.evaluation.summaries().zip(self.analyses) {
            html += &section(name, analysis);
        }
        html += &self.pictures()?;
        let mut facts = self.report.clone();
        if let Some(facts) = facts.as_object_mut() {
            facts.retain(|name, _| !["bbox", "segm", "analysis"].contains(&name.as_str()));
        }
        let _ = write!(
            html,
            "<h2>Run</h2>\n<div class=\"row\"><div>{}</div><div>{}</div></div>\n\
             <h2>Config</h2>\n<pre>{}</pre>\n</body></html>\n",
            tables::facts(&facts),
            tables::scores(self.evaluation.summaries()),
            escape(self.config_toml)
        );
        Ok(html)
    }

    /// The numbers that a reader looks for first.
    fn tiles(&self) -> String {
        let report = |key: &str| self.report[key].as_f64().unwrap_or(0.0);
        let mut tiles = Vec::new();
        for (name, summary) in self.evaluation.summaries() {
            for (stat, i) in [("AP", 0), ("AP50", 1)] {
                let value = summary.stats[i];
                let value = if value < 0.0 { "–".into() } else { format!("{value:.3}") };
                tiles.push((value, format!("{name} {stat}")));
            }
        }
        tiles.push((format!("{:.0}", report("steps")), "steps".into()));
        tiles.push((crate::metrics::duration(report("seconds")), "time".into()));
        let speed = format!("{:.1}", report("images_per_second"));
        tiles.push((speed, "images/s while training".into()));
        let tile = |(value, name): (String, String)| {
            format!("<div class=\"tile\"><b>{value}</b><span>{}</span></div>", escape(&name))
        };
        let about = ["device", "commit", "date"].map(|key| {
            let text = self.report[key].as_str().unwrap_or("unknown");
            format!("{key} {}", escape(text))
        });
        let tiles: String = tiles.into_iter().map(tile).collect();
        format!("<p>{}</p>\n<div class=\"tiles\">{tiles}</div>\n", about.join(" · "))
    }

    /// Loss, AP and learning rate by step.
    fn curves(&self) -> String {
        let line = |name: &str, path: &str| Line {
            name: name.to_string(),
            points: self
                .records
                .iter()
                .filter_map(|r| Some((r["step"].as_f64()?, r.pointer(path)?.as_f64()?)))
                .collect(),
        };
        let step = self.records.iter().find(|r| r["loss"].is_number());
        let names = step.and_then(Value::as_object).into_iter().flat_map(|r| r.keys());
        let parts = names.filter(|name| name.starts_with("loss_") && *name != "loss_scale");
        let parts: Vec<Line> = parts.map(|name| line(name, &format!("/{name}"))).collect();
        let kinds = self.evaluation.summaries().map(|(name, _)| name);
        let scores: Vec<Line> = kinds
            .flat_map(|kind| ["AP", "AP50"].map(|stat| (kind, stat)))
            .map(|(kind, stat)| line(&format!("{kind} {stat}"), &format!("/{kind}/{stat}")))
            .collect();
        let free = Extent::default();
        let shares = Extent { y: Some((0.0, 1.0)), ..free };
        let charts = [
            chart("Loss", "step", &[line("loss", "/loss")], free),
            chart("Losses by part", "step", &parts, free),
            chart("AP", "step", &scores, shares),
            chart("Learning rate", "step", &[line("lr", "/lr")], free),
        ];
        format!("<h2>Training</h2>\n<div class=\"row\">{}</div>\n", charts.concat())
    }

    /// Annotated objects beside detections.
    fn pictures(&self) -> Result<String, EngineError> {
        if self.pairs.is_empty() {
            return Ok(String::new());
        }
        let mut html = "<h2>Images, the worst first</h2>\n<p>Left: annotated objects. Right: \
                        detections that score at least 0.5.</p>\n<div class=\"pairs\">"
            .to_string();
        for Pair { scores, truth, found } in self.pairs {
            let ImageScores { image_id, found: hits, spurious, missed } = scores;
            let _ = writeln!(
                html,
                "<figure class=\"pair\"><div><img alt=\"annotated\" src=\"{}\">\
                 <img alt=\"detected\" src=\"{}\"></div><figcaption>image {image_id}: {hits} \
                 found, {missed} missed, {spurious} spurious</figcaption></figure>",
                data_url(truth)?,
                data_url(found)?
            );
        }
        Ok(html + "</div>\n")
    }
}

/// Classes, precision over recall, confusion and errors of boxes or of masks.
fn section(kind: &str, analysis: &Analysis) -> String {
    let of = |name: String, precision: &[f64]| Line {
        name,
        points: precision.iter().enumerate().map(|(i, p)| (i as f64 / 100.0, *p)).collect(),
    };
    let thresholds = [(0, "0.50"), (5, "0.75"), (9, "0.95")].map(|(i, iou)| {
        let precision = analysis.precision.get(i).map_or(&[][..], Vec::as_slice);
        of(format!("IoU {iou}"), precision)
    });
    let mut classes: Vec<_> = analysis.classes.iter().filter(|c| c.ap50.is_some()).collect();
    classes.sort_by(|a, b| a.ap50.unwrap_or(0.0).total_cmp(&b.ap50.unwrap_or(0.0)));
    let title = match classes.len() > DRAWN_CLASSES {
        true => format!("Precision over recall, IoU 0.50, the {DRAWN_CLASSES} weakest classes"),
        false => "Precision over recall, IoU 0.50, by class".to_string(),
    };
    let classes: Vec<Line> =
        classes.iter().take(DRAWN_CLASSES).map(|c| of(c.name.clone(), &c.precision)).collect();
    let unit = Extent { x: Some((0.0, 1.0)), y: Some((0.0, 1.0)) };
    let what = if kind == "bbox" { "Boxes (bbox)" } else { "Masks (segm)" };
    format!(
        "<h2>{what}</h2>\n<div class=\"row\">{}{}</div>\n<h3>Classes</h3>\
         <div class=\"scroll\">{}</div>\n<div class=\"row\">\
         <div><h3>Errors by kind (TIDE)</h3>{}</div>\
         <div class=\"scroll\"><h3>Confusion matrix</h3>{}</div></div>\n",
        chart("Precision over recall, mean over classes", "recall", &thresholds, unit),
        chart(&title, "recall", &classes, unit),
        tables::classes(analysis),
        tables::errors(analysis),
        tables::confusion(analysis)
    )
}

fn data_url(picture: &RgbImage) -> Result<String, EngineError> {
    let (width, height) = picture.dimensions();
    let small = match width > PICTURE_WIDTH {
        true => {
            let height = (height * PICTURE_WIDTH / width).max(1);
            let filter = image::imageops::FilterType::Triangle;
            image::imageops::resize(picture, PICTURE_WIDTH, height, filter)
        }
        false => picture.clone(),
    };
    Ok(format!("data:image/png;base64,{}", BASE64_STANDARD.encode(png(&small)?)))
}

/// Text that means nothing to a browser.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn names_mean_nothing_to_a_browser() {
        let text = escape("<script>alert('x')</script> & \"y\"");
        assert_eq!(text, "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp; &quot;y&quot;");
    }
}
