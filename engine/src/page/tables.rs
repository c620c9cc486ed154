//! Tables of a report: the twelve numbers, classes, confusion, kinds of errors.

use std::fmt::Write;

use dali::score::{Analysis, ClassScores, Summary};
use serde_json::Value;

use super::escape;

/// Most classes of a confusion matrix on the page: those with the most mistakes.
const CONFUSED: usize = 20;

/// The twelve numbers, one column for boxes and one for masks.
pub(super) fn scores<'a>(summaries: impl Iterator<Item = (&'static str, &'a Summary)>) -> String {
    let summaries: Vec<_> = summaries.collect();
    let mut html = "<table class=\"scores\"><thead><tr><th></th>".to_string();
    for (name, _) in &summaries {
        let _ = write!(html, "<th>{name}</th>");
    }
    html += "</tr></thead><tbody>";
    for i in 0..12 {
        let _ = write!(html, "<tr><th>{}</th>", dali::score::STAT_NAMES[i]);
        for (_, summary) in &summaries {
            let _ = write!(html, "<td>{}</td>", number(Some(summary.stats[i])));
        }
        html += "</tr>";
    }
    html + "</tbody></table>"
}

/// The scores of each class, best first.
pub(super) fn classes(analysis: &Analysis) -> String {
    let mut classes: Vec<&ClassScores> = analysis.classes.iter().collect();
    let ap = |class: &ClassScores| class.ap.unwrap_or(-1.0);
    classes.sort_by(|a, b| ap(b).total_cmp(&ap(a)));
    let mut html = "<table class=\"classes\"><thead><tr><th>class</th><th>objects</th><th>AP</th>\
                    <th></th><th>AP50</th><th>AP75</th><th>AR100</th></tr></thead><tbody>"
        .to_string();
    for class in classes {
        let _ = write!(
            html,
            "<tr><th>{}</th><td>{}</td><td>{}</td><td class=\"bar\"><i style=\"width:{:.1}%\"></i>\
             </td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&class.name),
            class.objects,
            number(class.ap),
            100.0 * class.ap.unwrap_or(0.0),
            number(class.ap50),
            number(class.ap75),
            number(class.ar)
        );
    }
    html + "</tbody></table>"
}

/// What each class is taken for.
pub(super) fn confusion(analysis: &Analysis) -> String {
    let nothing = analysis.classes.len();
    let mistakes = |class: usize| {
        let row: u64 = analysis.confusion[class].iter().sum();
        let column: u64 = analysis.confusion.iter().map(|row| row[class]).sum();
        row + column - 2 * analysis.confusion[class][class]
    };
    let mut shown: Vec<usize> = (0..nothing).collect();
    shown.sort_by_key(|class| std::cmp::Reverse(mistakes(*class)));
    shown.truncate(CONFUSED);
    shown.sort_unstable();
    let note = match shown.len() < nothing {
        true => format!("<p>The {CONFUSED} classes with the most mistakes of {nothing}.</p>"),
        false => String::new(),
    };
    let name = |class: usize, none: &str| match analysis.classes.get(class) {
        Some(class) => escape(&class.name),
        None => format!("<em>{none}</em>"),
    };
    let ends = shown.iter().copied().chain([nothing]);
    let mut html = format!("{note}<table class=\"confusion\"><thead><tr><th>is \\ found as</th>");
    for column in ends.clone() {
        let _ = write!(html, "<th>{}</th>", name(column, "missed"));
    }
    html += "</tr></thead><tbody>";
    for row in ends.clone() {
        let _ = write!(html, "<tr><th>{}</th>", name(row, "nothing"));
        let total: u64 = analysis.confusion[row].iter().sum();
        for column in ends.clone() {
            let count = analysis.confusion[row][column];
            let share = count as f64 / total.max(1) as f64;
            let class = if row == column { "right" } else { "wrong" };
            let _ = match (row, column) == (nothing, nothing) {
                true => write!(html, "<td></td>"),
                false => write!(
                    html,
                    "<td class=\"{class}\" style=\"--share:{:.0}%\">{count}</td>",
                    100.0 * share
                ),
            };
        }
        html += "</tr>";
    }
    html + "</tbody></table>"
}

/// Kinds of errors with what they cost.
pub(super) fn errors(analysis: &Analysis) -> String {
    let most = analysis.errors.iter().map(|e| e.ap_lost).fold(1e-9, f64::max);
    let mut html = "<table class=\"errors\"><thead><tr><th>error</th><th>number</th>\
                    <th>AP50 lost</th><th></th></tr></thead><tbody>"
        .to_string();
    for kind in &analysis.errors {
        let _ = write!(
            html,
            "<tr><th>{}</th><td>{}</td><td>{:.3}</td><td class=\"bar\">\
             <i style=\"width:{:.1}%\"></i></td></tr>",
            kind.meaning,
            kind.count,
            kind.ap_lost,
            100.0 * (kind.ap_lost / most).max(0.0)
        );
    }
    html + "</tbody></table>"
}

/// A table of names and values; inner objects become `outer.inner`.
pub(super) fn facts(value: &Value) -> String {
    let mut html = "<table class=\"facts\"><tbody>".to_string();
    rows("", value, &mut html);
    html + "</tbody></table>"
}

fn rows(prefix: &str, value: &Value, html: &mut String) {
    for (name, value) in value.as_object().into_iter().flatten() {
        let name = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        let text = match value {
            Value::Object(_) => {
                rows(&name, value, html);
                continue;
            }
            Value::Null => continue,
            Value::String(text) => text.clone(),
            Value::Number(n) if n.is_f64() => format!("{:.2}", n.as_f64().unwrap_or_default()),
            other => other.to_string(),
        };
        let _ = write!(html, "<tr><th>{}</th><td>{}</td></tr>", escape(&name), escape(&text));
    }
}

/// A score; a dash where it is undefined.
fn number(value: Option<f64>) -> String {
    value.filter(|v| *v >= 0.0).map_or("–".into(), |v| format!("{v:.3}"))
}
