//! `report.html`: a run on one self-contained page, without scripts or external files.

mod chart;
mod comparison;
mod evaluation;
mod tables;

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use score::IouType;
use serde_json::Value;

use crate::metrics::duration;
use crate::picture::escape;

use chart::{Axes, Line, chart};
pub(crate) use comparison::ComparisonPage;
use evaluation::evaluation;

const STYLE: &str = include_str!("style.css");
/// Fields of `report.json` that are omitted from the page's table, as other parts of the page show
/// them.
const SHOWN_ELSEWHERE: [&str; 5] = ["analysis", "pictures", "best", "commands", "state"];

/// Interval at which the page of a run in progress is rewritten, and reloaded by browsers.
pub(crate) const REFRESH: Duration = Duration::from_secs(60);

/// The accuracies that are drawn: those that increase during training.
const ACCURACIES: [&str; 5] = [
    "fast_rcnn/cls_accuracy",
    "fast_rcnn/fg_cls_accuracy",
    "rpn/recall",
    "rpn/proposal_recall",
    "mask_rcnn/accuracy",
];

/// The contents of a page.
#[derive(Debug)]
pub(crate) struct Page<'a> {
    /// The run directory; its name is the page's title.
    pub(crate) run: &'a Path,
    /// `report.json`.
    pub(crate) report: &'a Value,
    /// The records of `metrics.jsonl`.
    pub(crate) records: &'a [Value],
    /// The resolved config.
    pub(crate) config_toml: &'a str,
}

/// An HTML page with a title; browsers reload it after `reload`, if given.
pub(crate) fn document(title: &str, reload: Option<Duration>, body: &str) -> String {
    let title = escape(title);
    let again =
        |time: Duration| format!("<meta http-equiv=\"refresh\" content=\"{}\">", time.as_secs());
    let again = reload.map(again).unwrap_or_default();
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         {again}<title>{title}</title>\n<style>\n{STYLE}</style></head><body>\n<h1>{title}</h1>\n\
         {body}</body></html>\n"
    )
}

impl Page<'_> {
    /// The page as HTML.
    pub(crate) fn html(&self) -> String {
        let name = self.run.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        let mut html = self.head();
        html += &self.tiles();
        html += &self.curves();
        html += &evaluation(self.report, self.run);
        let mut facts = self.report.clone();
        if let Some(facts) = facts.as_object_mut() {
            let kinds = IouType::ALL.map(IouType::name);
            let is_elsewhere =
                |name: &str| SHOWN_ELSEWHERE.contains(&name) || kinds.contains(&name);
            facts.retain(|name, _| !is_elsewhere(name));
        }
        let commands = self.report["commands"].as_array().into_iter().flatten();
        let commands: Vec<String> = commands.filter_map(Value::as_str).map(escape).collect();
        // `write!` to a string cannot fail, so its result is ignored.
        let _ = write!(
            html,
            "<h2>Run</h2>\n<h3>Commands</h3>\n<pre class=\"commands\">{}</pre>\n<div class=\"facts-and-scores\">\
             <div>{}</div><div>{}</div></div>\n\
             <h2>Config</h2>\n<pre class=\"config\">{}</pre>\n",
            commands.join("\n"),
            tables::facts(&facts),
            tables::scores(self.report),
            escape(self.config_toml)
        );
        document(&name, (self.report["state"] == "training").then_some(REFRESH), &html)
    }

    /// The run's state, time, and directory.
    fn head(&self) -> String {
        let report = self.report;
        let text = |key: &str| escape(report[key].as_str().unwrap_or("unknown"));
        let state = match report["state"].as_str().unwrap_or_default() {
            "training" => "not ended when this was written",
            "diverged" => "ended: the losses became non-finite",
            "interrupted" => "interrupted by a signal; it can be resumed",
            "target_reached" => "ended: the target is reached",
            "no_improvement" => "ended: the score no longer improves",
            _ => "ended: all steps are done",
        };
        let mut html = format!(
            "<p>{state} · device {} · commit {} · started {} · written {}</p>\n",
            text("device"),
            text("commit"),
            text("started"),
            text("written")
        );
        let session = &report["last_session"];
        let sessions = report["commands"].as_array().map_or(1, Vec::len);
        if sessions > 1 {
            let speed = session["images_per_second"].as_f64();
            let speed = speed.map_or(String::new(), |speed| format!(", {speed:.1} images/s"));
            let _ = writeln!(
                html,
                "<p>Time and speed cover all {sessions} sessions. The last one: {} steps in \
                 {}{speed}.</p>",
                session["steps"],
                duration(session["seconds"].as_f64().unwrap_or(0.0))
            );
        }
        html
    }

    /// Tiles with the key figures.
    fn tiles(&self) -> String {
        let report = self.report;
        let mut tiles = Vec::new();
        let evaluated = &report["evaluated_step"];
        let scored =
            || IouType::ALL.map(IouType::name).into_iter().filter(|kind| report[*kind].is_object());
        for kind in scored() {
            for stat in ["AP", "AP50"] {
                let name = format!("{kind} {stat}, after step {evaluated}");
                tiles.push((tables::number(report[kind][stat].as_f64()), name));
            }
        }
        let best = &report["best"];
        if best["step"].is_u64() && best["step"] != *evaluated {
            for kind in
                IouType::ALL.map(IouType::name).into_iter().filter(|kind| best[*kind].is_object())
            {
                let ap = tables::number(best[kind]["AP"].as_f64());
                tiles.push((ap, format!("{kind} AP, best step {}", best["step"])));
            }
        }
        tiles.push((report["steps"].to_string(), format!("of {} steps", report["total_steps"])));
        let seconds = report["seconds"].as_f64().unwrap_or(0.0);
        tiles.push((duration(seconds), "training and evaluation".into()));
        let speed = report["images_per_second"].as_f64();
        let speed = speed.map_or("–".into(), |speed| format!("{speed:.1}"));
        tiles.push((speed, "images/s while training".into()));
        let tile = |(value, name): (String, String)| {
            format!("<div class=\"tile\"><b>{value}</b><span>{}</span></div>", escape(&name))
        };
        let tiles: String = tiles.into_iter().map(tile).collect();
        let best = match (best["step"].as_u64(), best["metric"].as_str()) {
            (Some(step), Some(metric)) if best["step"] == *evaluated => {
                format!("<p>Step {step} is also the best by {} AP.</p>\n", escape(metric))
            }
            (Some(step), Some(metric)) => {
                format!("<p>Step {step} is the best by {} AP.</p>\n", escape(metric))
            }
            _ => "<p>Nothing has been evaluated yet.</p>\n".into(),
        };
        format!("<div class=\"tiles\">{tiles}</div>\n{best}")
    }

    /// Charts of loss, AP and learning rate by step.
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
        let mut loss = vec![line("loss", "/loss"), line("validation", "/val_loss")];
        loss.retain(|line| !line.points.is_empty());
        // A "/" in a name is escaped as "~1" in a JSON pointer.
        let accuracies =
            ACCURACIES.map(|name| line(name, &format!("/{}", name.replace('/', "~1"))));
        let scores: Vec<Line> = IouType::ALL
            .map(IouType::name)
            .into_iter()
            .flat_map(|kind| ["AP", "AP50"].map(|stat| (kind, stat)))
            .map(|(kind, stat)| line(&format!("{kind} {stat}"), &format!("/{kind}/{stat}")))
            .filter(|line| !line.points.is_empty())
            .collect();
        let last = self.records.iter().filter_map(|r| r["step"].as_f64()).fold(1.0, f64::max);
        let axes = |y_name| Axes { x_name: "step", y_name, x: Some((0.0, last)), y: None };
        let charts = [
            chart("Loss", axes("loss"), &loss),
            chart("Losses by part", axes("loss"), &parts),
            chart("AP", Axes { y: Some((0.0, 1.0)), ..axes("AP") }, &scores),
            chart("Accuracies", Axes { y: Some((0.0, 1.0)), ..axes("share") }, &accuracies),
            chart("Learning rate", axes("learning rate"), &[line("lr", "/lr")]),
        ];
        format!("<h2>Training</h2>\n<div class=\"charts\">{}</div>\n", charts.concat())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn page(report: &Value, records: &[Value]) -> String {
        Page { run: "run".as_ref(), report, records, config_toml: "" }.html()
    }

    #[test]
    fn unevaluated_run_has_a_page() {
        let report = json!({"state": "training", "steps": 3, "total_steps": 9, "commands": ["a"]});
        let records = [json!({"step": 3, "loss": 1.0, "lr": 0.1})];
        let html = page(&report, &records);
        assert!(html.contains("not ended when this was written") && html.contains("of 9 steps"));
        assert!(html.contains("Nothing has been evaluated yet") && html.contains("images/s"));
        assert!(!html.contains("0.0 images/s") && !html.contains("sessions"), "{html}");
        assert!(html.contains("<meta http-equiv=\"refresh\" content=\"60\">"), "{html}");
    }

    #[test]
    fn page_marks_sessions_and_best_step() {
        let score = json!({"AP": 0.25, "AP50": 0.5});
        let mut report = json!({
            "state": "interrupted", "steps": 310, "total_steps": 400, "seconds": 3723.0,
            "images_per_second": 12.0, "commands": ["first", "second"], "evaluated_step": 300,
            "last_session": {"steps": 10, "seconds": 1.0, "images_per_second": 16.8},
            "bbox": score, "best": {"metric": "bbox", "step": 200, "bbox": score, "segm": null},
        });
        let html = page(&report, &[]);
        for part in [
            "all 2 sessions. The last one: 10 steps in 0:00:01, 16.8 images/s.",
            "<b>1:02:03</b><span>training and evaluation",
            "<b>0.250</b><span>bbox AP, after step 300",
            "<b>0.250</b><span>bbox AP, best step 200",
            "first\nsecond",
        ] {
            assert!(html.contains(part), "{part}\n{html}");
        }
        assert!(!html.contains("http-equiv"), "the run has ended");
        report["best"]["step"] = 300.into();
        assert!(page(&report, &[]).contains("Step 300 is also the best by bbox AP."));
    }
}
