//! Tables of a report: the metrics of each IoU type, classes, confusion, error types.

use std::fmt::Write;

use score::{Analysis, ClassScores, IouType};
use serde_json::Value;

use crate::metrics::duration;
use crate::picture::escape;
use crate::runtime::gib;

/// Maximum number of classes in the page's confusion matrix; those with the most mistakes are
/// shown.
const CONFUSED: usize = 20;

/// A table of the metrics of `report.json` with a column for each IoU type; a cell is empty if its
/// IoU type does not have the metric.
pub(super) fn scores(report: &Value) -> String {
    let kinds = IouType::ALL.into_iter();
    let kinds: Vec<IouType> = kinds.filter(|kind| report[kind.name()].is_object()).collect();
    if kinds.is_empty() {
        return String::new();
    }
    let mut html = "<table class=\"scores\"><thead><tr><th></th>".to_string();
    // `write!` to a string cannot fail, so its results are ignored.
    for name in &kinds {
        let _ = write!(html, "<th>{name}</th>");
    }
    html += "</tr></thead><tbody>";
    let mut stats: Vec<&str> = Vec::new();
    for stat in kinds.iter().flat_map(|kind| kind.stat_names()) {
        if !stats.contains(stat) {
            stats.push(stat);
        }
    }
    for stat in stats {
        let _ = write!(html, "<tr><th>{stat}</th>");
        for kind in &kinds {
            let value = match kind.stat_names().contains(&stat) {
                true => number(report[kind.name()][stat].as_f64()),
                false => String::new(),
            };
            let _ = write!(html, "<td>{value}</td>");
        }
        html += "</tr>";
    }
    html + "</tbody></table>"
}

/// A table of scores of the classes that have objects, best first.
pub(super) fn classes(analysis: &Analysis, kind: IouType) -> String {
    let (on, recall) = (kind.shapes(), kind.recall_name());
    let (mut classes, without): (Vec<&ClassScores>, Vec<&ClassScores>) =
        analysis.classes.iter().partition(|class| class.objects > 0);
    let ap = |class: &ClassScores| class.ap.unwrap_or(-1.0);
    classes.sort_by(|a, b| ap(b).total_cmp(&ap(a)));
    let mut html = format!(
        "<table class=\"classes\"><thead><tr><th>class</th><th>objects</th><th>AP of {on}</th>\
         <th></th><th>AP50</th><th>AP75</th><th>{recall}</th><th>best threshold</th>\
         <th>precision</th><th>recall</th></tr></thead><tbody>"
    );
    for class in classes {
        let best = class.best_threshold;
        let _ = write!(
            html,
            "<tr><th>{}</th><td>{}</td><td>{}</td><td class=\"bar\"><i style=\"width:{:.1}%\"></i>\
             </td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&class.name),
            class.objects,
            number(class.ap),
            100.0 * class.ap.unwrap_or(0.0),
            number(class.ap50),
            number(class.ap75),
            number(class.ar),
            number(best.map(|best| best.score)),
            number(best.map(|best| best.precision)),
            number(best.map(|best| best.recall))
        );
    }
    html += "</tbody></table>";
    if !without.is_empty() {
        let names: Vec<String> = without.iter().map(|class| escape(&class.name)).collect();
        let _ = write!(html, "<p>Without objects: {}.</p>", names.join(", "));
    }
    html
}

/// The confusion matrix: missed objects and background detections first, then the classes with the
/// most mistakes, then all remaining classes in one column.
pub(super) fn confusion(analysis: &Analysis) -> String {
    let nothing = analysis.classes.len();
    let matrix = &analysis.confusion;
    let row_sum = |class: usize| matrix[class].iter().sum::<u64>();
    let column_sum = |class: usize| matrix.iter().map(|row| row[class]).sum::<u64>();
    let mistakes = |class: usize| row_sum(class) + column_sum(class) - 2 * matrix[class][class];
    let mut shown: Vec<usize> =
        (0..nothing).filter(|class| row_sum(*class) + column_sum(*class) > 0).collect();
    let present = shown.len();
    shown.sort_by_key(|class| std::cmp::Reverse(mistakes(*class)));
    shown.truncate(CONFUSED);
    shown.sort_unstable();
    let has_others = shown.len() < present;
    let name = |class: usize| escape(&analysis.classes[class].name);
    let mut html = match has_others {
        true => format!("<p>The {CONFUSED} classes with the most mistakes, of {present}.</p>"),
        false => String::new(),
    };
    html += "<div class=\"scroll\"><table class=\"confusion\"><thead><tr>\
             <th>is \\ detected as</th><th><span><em>missed</em></span></th>";
    for &column in &shown {
        let _ = write!(html, "<th><span>{}</span></th>", name(column));
    }
    html += if has_others { "<th><span><em>others</em></span></th>" } else { "" };
    html += "</tr></thead><tbody>";
    for row in std::iter::once(nothing).chain(shown.iter().copied()) {
        let total = row_sum(row).max(1) as f64;
        let cell = |class: &str, count: u64| match count {
            0 => "<td></td>".to_string(),
            _ => {
                let share = 100.0 * count as f64 / total;
                format!("<td class=\"{class}\" style=\"--share:{share:.0}%\">{count}</td>")
            }
        };
        html += &match row == nothing {
            true => "<tr><th><em>nothing (spurious)</em></th><td></td>".to_string(),
            false => format!("<tr><th>{}</th>{}", name(row), cell("wrong", matrix[row][nothing])),
        };
        for &column in &shown {
            html += &cell(if row == column { "right" } else { "wrong" }, matrix[row][column]);
        }
        if has_others {
            let listed: u64 = shown.iter().chain([&nothing]).map(|c| matrix[row][*c]).sum();
            html += &cell("wrong", row_sum(row) - listed);
        }
        html += "</tr>";
    }
    html + "</tbody></table></div>"
}

/// A table of error types with their cost in AP.
pub(super) fn errors(analysis: &Analysis) -> String {
    let most = analysis.errors.iter().map(|e| e.ap_lost).fold(1e-9, f64::max);
    let mut html = "<table class=\"errors\"><thead><tr><th>error</th><th>number</th>\
                    <th>AP50 lost</th><th></th></tr></thead><tbody>"
        .to_string();
    for kind in &analysis.errors {
        let _ = write!(
            html,
            "<tr><th>{} ({})</th><td>{}</td><td>{:.3}</td><td class=\"bar\">\
             <i style=\"width:{:.1}%\"></i></td></tr>",
            kind.meaning,
            kind.kind,
            kind.count,
            kind.ap_lost,
            100.0 * (kind.ap_lost / most).max(0.0)
        );
    }
    html + "</tbody></table>"
}

/// A table of names and values; nested objects are flattened to `outer.inner`.
pub(super) fn facts(value: &Value) -> String {
    let mut html = "<table class=\"facts\"><tbody>".to_string();
    rows("", value, &mut html);
    html + "</tbody></table>"
}

fn rows(prefix: &str, value: &Value, html: &mut String) {
    for (name, value) in value.as_object().into_iter().flatten() {
        let name = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        let (name, text) = match value {
            Value::Object(_) => {
                rows(&name, value, html);
                continue;
            }
            Value::Null => continue,
            Value::String(text) => (name, text.clone()),
            Value::Number(n) => fact(&name, n.as_f64().unwrap_or_default(), n.is_f64()),
            other => (name, other.to_string()),
        };
        let _ = write!(html, "<tr><th>{}</th><td>{}</td></tr>", escape(&name), escape(&text));
    }
}

/// Name and value of a number, in a human-readable unit.
fn fact(name: &str, value: f64, is_fraction: bool) -> (String, String) {
    if let Some(name) = name.strip_suffix("_bytes") {
        return (name.to_string(), format!("{:.1} GiB", gib(value as usize)));
    }
    if name == "seconds" || name.ends_with("_seconds") || name.ends_with(".seconds") {
        return (name.replace("seconds", "time"), duration(value));
    }
    let digits = if is_fraction { 2 } else { 0 };
    (name.to_string(), format!("{value:.digits$}"))
}

/// A score; a dash where it is undefined.
pub(super) fn number(value: Option<f64>) -> String {
    value.filter(|v| *v >= 0.0).map_or("–".into(), |v| format!("{v:.3}"))
}

#[cfg(test)]
mod tests {
    use super::super::evaluation::tests::{analysis_of, class};
    use super::*;

    #[test]
    fn large_confusion_matrix_rows_count_every_object() {
        // 30 classes: objects of class i are missed i times and mistaken for the next class once;
        // class 0 has no objects.
        let count = 30;
        let mut confusion = vec![vec![0; count + 1]; count + 1];
        for i in 1..count {
            confusion[i][count] = i as u64;
            confusion[i][1 + i % (count - 1)] += 1;
        }
        let classes = (0..count).map(|i| class(&format!("c{i}"), Some(0.0))).collect();
        let html = confusion_of(Analysis { confusion, ..analysis_of(classes) });
        assert!(html.contains("The 20 classes with the most mistakes, of 29."));
        assert!(html.find("missed") < html.find("c29"), "the missed come first");
        assert!(!html.contains("<th>c0</th>") && html.contains("others"));
        let rows: Vec<&str> = html.split("<tr>").skip(3).collect();
        assert_eq!(rows.len(), 20);
        for row in rows {
            let name = row.split(['>', '<']).nth(2).expect("a name");
            let i: u64 = name[1..].parse().expect("a number");
            let cells = row.split("%\">").skip(1);
            let sum: u64 = cells
                .map(|c| c.split('<').next().expect("a count").parse::<u64>().expect("a count"))
                .sum();
            assert_eq!(sum, i + 1, "{row}");
        }
    }

    fn confusion_of(analysis: Analysis) -> String {
        let html = confusion(&analysis);
        roxmltree::Document::parse(&format!("<div>{html}</div>")).expect("well-formed");
        html
    }

    #[test]
    fn report_facts_are_printed_in_readable_units() {
        let html = facts(&serde_json::json!({
            "memory_bytes": 25_276_510_208_u64, "train_seconds": 61.2,
            "seconds": 3600.0, "last": {"seconds": 1.0, "train_seconds": 0.4}, "threads": 2
        }));
        for part in [
            "memory</th><td>23.5 GiB",
            "train_time</th><td>0:01:01",
            "time</th><td>1:00:00",
            "last.time</th><td>0:00:01",
            "last.train_time</th><td>0:00:00",
            "threads</th><td>2<",
        ] {
            assert!(html.contains(part), "{part}\n{html}");
        }
    }
}
