//! The page of `onegraph compare`: results, curves of all runs, and tables for each compared run.

use std::fmt::Write;

use score::{IouType, ScoreDifference};
use serde_json::Value;

use super::chart::{Axes, Line, chart};
use super::document;
use super::tables::number;
use crate::comparison::{ComparedRun, ComparedWithFirst, verdict};
use crate::picture::escape;

/// The contents of a page.
pub(crate) struct ComparisonPage<'a> {
    /// All runs.
    pub(crate) runs: &'a [ComparedRun],
    /// All runs but the first, each compared with the first.
    pub(crate) compared: &'a [ComparedWithFirst],
}

impl ComparisonPage<'_> {
    /// The page as HTML.
    pub(crate) fn html(&self) -> String {
        let names: Vec<String> = self.runs.iter().map(|run| escape(&run.name)).collect();
        let mut html =
            "<p>95 % intervals, estimated by resampling the validation images. They do not \
                        include seed variance: two seeds may differ by more, so compare several \
                        seeds of each config.</p>\n"
                .to_string();
        html += &self.curves();
        for (name, (run, found)) in names[1..].iter().zip(self.runs[1..].iter().zip(self.compared))
        {
            // `writeln!` to a string cannot fail, so its results are ignored.
            let _ = writeln!(html, "<h2>{} and {name}</h2>", names[0]);
            for scores in &found.scores {
                let text = verdict(scores, [&self.runs[0].name, &run.name]);
                let _ = writeln!(html, "<p>{}</p>", escape(&text));
            }
            html += &keys(found);
            html += "<div class=\"facts-and-scores\">";
            for scores in &found.scores {
                let title = format!("{} ({})", scores.iou_type.shapes(), scores.iou_type);
                html += &differences(&title, [&names[0], name], &scores.stats);
            }
            if let Some(scores) = found.scores.last() {
                let title = format!("AP of {} by class", scores.iou_type.shapes());
                html += &differences(&title, [&names[0], name], &scores.classes);
            }
            html += "</div>\n";
        }
        let title = self.runs.iter().map(|run| run.name.as_str()).collect::<Vec<_>>().join(", ");
        document(&title, None, &html)
    }

    /// Scores and losses by step, one line per run.
    fn curves(&self) -> String {
        let points = |records: &[Value], path: &str| {
            let point = |r: &Value| Some((r["step"].as_f64()?, r.pointer(path)?.as_f64()?));
            records.iter().filter_map(point).collect::<Vec<_>>()
        };
        let of = |path: &str| -> Vec<Line> {
            let line = |run: &ComparedRun| Line {
                name: run.name.clone(),
                points: points(&run.records, path),
            };
            self.runs.iter().map(line).collect()
        };
        let axes = |y_name, y| Axes { x_name: "step", y_name, x: None, y };
        let mut charts = String::new();
        for kind in IouType::ALL {
            let title = format!("{} AP", kind.shape());
            charts += &chart(&title, axes("AP", None), &of(&format!("/{}/AP", kind.name())));
        }
        charts += &chart("Training loss", axes("loss", None), &of("/loss"));
        charts += &chart("Validation loss", axes("loss", None), &of("/val_loss"));
        format!("<div class=\"charts\">{charts}</div>\n")
    }
}

/// A table of the keys in which two configs differ.
fn keys(found: &ComparedWithFirst) -> String {
    if found.keys.is_empty() {
        return "<p>Their configs are the same.</p>\n".into();
    }
    let row = |key: &crate::config::Difference| {
        let [name, from, to] = [&key.key, &key.from, &key.to].map(|text| escape(text));
        format!("<tr><th>{name}</th><td>{from}</td><td>{to}</td></tr>")
    };
    let rows: String = found.keys.iter().map(row).collect();
    format!("<table class=\"facts\"><tbody>{rows}</tbody></table>\n")
}

/// A table of the scores of two runs.
fn differences(title: &str, names: [&String; 2], stats: &[ScoreDifference]) -> String {
    let has_intervals = stats.iter().any(|stat| stat.interval.is_some());
    let mut html = format!(
        "<div><h3>{}</h3><table class=\"scores\"><thead><tr><th></th><th>{}</th><th>{}</th>\
         <th>difference</th>{}</tr></thead><tbody>",
        escape(title),
        names[0],
        names[1],
        if has_intervals { "<th>95 % interval</th>" } else { "" }
    );
    for stat in stats {
        let [first, second] = stat.scores.map(number);
        let difference = stat.difference().map_or("–".into(), |value| format!("{value:+.3}"));
        let interval = stat.interval.map(|[low, high]| format!("{low:+.3} to {high:+.3}"));
        let difference = match stat.is_certain() {
            true => format!("<b>{difference}</b>"),
            false => difference,
        };
        let _ = write!(
            html,
            "<tr><th>{}</th><td>{first}</td><td>{second}</td><td>{difference}</td>",
            escape(&stat.name)
        );
        if has_intervals {
            let _ = write!(html, "<td>{}</td>", interval.unwrap_or_default());
        }
        html += "</tr>";
    }
    html + "</tbody></table></div>"
}
