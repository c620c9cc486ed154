//! `bench history`: each figure of a device over its sessions, the newest last, with its ratio to
//! the previous one and to the first.

use std::fmt::Write;

use super::predictions::{judged, verdict};
use super::schema::{Infer, Prediction, Session};

/// A figure of a session.
#[derive(Debug, Clone, PartialEq)]
struct Figure {
    /// What it depends on: figures with equal names are comparable.
    name: String,
    value: f64,
    unit: String,
    /// Includes the value in the figure's own unit.
    prediction: Option<Prediction>,
    /// Remarks for readers.
    note: String,
    /// Listed only on request: there are hundreds.
    is_detail: bool,
}

/// All sessions, by device; single ops and nodes only if their name contains `filter`.
pub(super) fn text(sessions: &[Session], filter: Option<&str>) -> String {
    let mut text = String::new();
    let mut devices: Vec<&str> = Vec::new();
    for session in sessions {
        if !devices.contains(&session.device_name()) {
            devices.push(session.device_name());
        }
    }
    for device in devices {
        let ours: Vec<&Session> = sessions.iter().filter(|s| s.device_name() == device).collect();
        // Writing into a string cannot fail.
        let _ = of_device(&mut text, device, &ours, filter);
    }
    if text.is_empty() { "no session yet\n".into() } else { text }
}

fn of_device(
    text: &mut String,
    device: &str,
    sessions: &[&Session],
    filter: Option<&str>,
) -> std::fmt::Result {
    writeln!(text, "{device}")?;
    for session in sessions {
        let told = [&session.cuda, &session.driver, &session.clocks, &session.power];
        let told: Vec<&str> = told.into_iter().flatten().map(String::as_str).collect();
        let line = format!("  {}  {}", session.title(), told.join(" | "));
        writeln!(text, "{}", line.trim_end())?;
        session.remarks.iter().try_for_each(|remark| writeln!(text, "    {remark}"))?;
    }
    let figures: Vec<Vec<Figure>> = sessions.iter().map(|session| figures(session)).collect();
    for name in names(&figures, filter) {
        let found = |list: &Vec<Figure>| list.iter().find(|f| f.name == name).cloned();
        let series: Vec<(String, Figure)> = sessions
            .iter()
            .zip(&figures)
            .filter_map(|(session, list)| Some((session.title(), found(list)?)))
            .collect();
        writeln!(text, "  {name}")?;
        let values: Vec<f64> = series.iter().map(|(_, figure)| figure.value).collect();
        for (i, (title, figure)) in series.iter().enumerate() {
            let ratios = ratios(&values, i);
            let said = figure.prediction.as_ref().map_or(String::new(), |p| {
                let verdict = verdict(p.value, p.margin, figure.value);
                format!("  predicted {}: {verdict}", short(p.value))
            });
            let Figure { unit, note, .. } = figure;
            let value = short(figure.value);
            let line = format!("    {title:<28} {value:>10} {unit:<9}{ratios}{said}{note}");
            writeln!(text, "{}", line.trim_end())?;
        }
    }
    let said = sessions.last().map(|session| judged(session)).unwrap_or_default();
    if !said.is_empty() {
        writeln!(text, "  predictions, beside the newest session")?;
    }
    for one in said {
        let (measured, unit) = (short(one.measured), one.row.unit);
        let (what, value) = (one.row.what, one.row.text());
        let verdict = one.verdict();
        writeln!(text, "    {what:<52} {value:>12}  measured {measured} {unit}: {verdict}")?;
    }
    Ok(())
}

/// Ratios to the previous one and to the first; empty for the first itself.
fn ratios(values: &[f64], i: usize) -> String {
    if i == 0 {
        return String::new();
    }
    format!(
        "  x{:.3} to the one before, x{:.3} to the first",
        values[i] / values[i - 1],
        values[i] / values[0]
    )
}

/// Names in order of first appearance, details only on request.
fn names(sessions: &[Vec<Figure>], filter: Option<&str>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let wanted = |figure: &Figure| match filter {
        Some(part) => figure.name.contains(part),
        None => !figure.is_detail,
    };
    for figure in sessions.iter().flatten().filter(|figure| wanted(figure)) {
        if !names.contains(&figure.name) {
            names.push(figure.name.clone());
        }
    }
    names
}

/// Four significant digits.
pub(super) fn short(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 1000.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 10.0 => 2,
        v if v >= 1.0 => 3,
        _ => 4,
    };
    format!("{value:.digits$}")
}

/// Every figure of a session, under a name that includes everything it depends on.
fn figures(session: &Session) -> Vec<Figure> {
    let mut all = Vec::new();
    let figure = |name: String, value: f64, unit: &str| {
        let (unit, note) = (unit.to_string(), String::new());
        Figure { name, value, unit, prediction: None, note, is_detail: false }
    };
    for step in &session.steps {
        let name = format!("step {}, batch {}, {}", step.title(), step.batch, step.padded);
        all.push(figure(name.clone(), step.images_per_second, "images/s"));
        let p50 = figure(format!("{name}: p50"), step.p50_ms, "ms");
        all.push(Figure { prediction: step.prediction.clone(), ..p50 });
    }
    session.infer.iter().for_each(|infer| detection(infer, &mut all));
    for peer in &session.peers {
        all.push(figure(format!("{} {}", peer.product, peer.what), peer.value, &peer.unit));
    }
    for probe in &session.probe {
        let speed = figure(format!("probe {}", probe.name), probe.value, &probe.unit);
        all.push(Figure { prediction: probe.prediction.clone(), ..speed });
    }
    all.extend(session.counts.iter().map(|(name, value)| figure(name.clone(), *value, "")));
    if !session.nodes.is_empty() {
        let ms = session.nodes.iter().map(|node| node.us / 1e3).sum();
        all.push(figure("all nodes of a step".into(), ms, "ms"));
    }
    if !session.ops.is_empty() {
        let ms = session.ops.iter().map(|op| op.ms).sum();
        all.push(figure(format!("all of {} cases of ops", session.ops.len()), ms, "ms"));
    }
    for node in &session.nodes {
        let name = format!("node {} {}, {}", node.op, node.pass, node.shapes);
        let (prediction, is_detail) = (node.prediction.clone(), true);
        all.push(Figure { prediction, is_detail, ..figure(name, node.each_us(), "us") });
    }
    for op in &session.ops {
        let ms = figure(format!("op {}", op.case), op.ms, "ms");
        all.push(Figure { is_detail: true, ..ms });
    }
    all
}

/// Rates at each depth of detection, and the latency of the deepest.
fn detection(infer: &Infer, all: &mut Vec<Figure>) {
    let Infer { preset, batch, padded, weights, score_threshold, .. } = infer;
    let name = format!(
        "infer {preset}, batch {batch}, {padded}, weights {weights}, scores over {score_threshold}"
    );
    let note = format!("  {} detections an image", short(infer.detections_per_image));
    let mut add = |what: &str, value: f64, unit: &str, prediction: Option<Prediction>| {
        let (name, unit, note) = (format!("{name}: {what}"), unit.to_string(), note.clone());
        all.push(Figure { name, value, unit, prediction, note, is_detail: false });
    };
    add("program", infer.program.images_per_second, "images/s", None);
    add("+ read (boxes)", infer.boxes.images_per_second, "images/s", None);
    add("+ masks", infer.masks.images_per_second, "images/s", None);
    add("+ scores", infer.scored_images_per_second, "images/s", None);
    add("+ masks, p50", infer.masks.p50_ms, "ms", infer.prediction.clone());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::samples::gpu;

    #[test]
    fn ratios_are_to_the_one_before_and_to_the_first() {
        let values = [100.0, 80.0, 120.0];
        assert_eq!(ratios(&values, 0), "");
        assert_eq!(ratios(&values, 1), "  x0.800 to the one before, x0.800 to the first");
        assert_eq!(ratios(&values, 2), "  x1.500 to the one before, x1.200 to the first");
    }

    #[test]
    fn figures_have_four_digits() {
        let all = [1234.5, 123.45, 12.345, 1.2345, 0.12345].map(short);
        assert_eq!(all, ["1234", "123.5", "12.35", "1.234", "0.1235"]);
    }

    #[test]
    fn devices_are_told_apart_and_the_newest_comes_last() {
        let mut other = gpu("2026-12-02", "bbb", 50.0);
        other.device = "NVIDIA H200, driver for CUDA 13.0".into();
        let sessions = [gpu("2026-12-01", "aaa", 66.0), other, gpu("2026-12-03", "ccc", 33.0)];
        let text = text(&sessions, None);
        let heads: Vec<&str> = text.lines().filter(|line| !line.starts_with(' ')).collect();
        assert_eq!(heads, ["NVIDIA H100 80GB HBM3", "NVIDIA H200"]);
        let of_h100 = text.split("NVIDIA H200").next().expect("the first device");
        let at = of_h100.find("800x1344: p50\n").expect("the step");
        let lines: Vec<&str> = of_h100[at..].lines().skip(1).take(2).collect();
        assert!(lines[0].contains("2026-12-01 aaa"), "{text}");
        assert!(lines[1].contains("2026-12-03 ccc"), "{text}");
        assert!(lines[1].contains(" 33.00 ms") && lines[1].contains("x0.500"), "{text}");
        let said = "predicted 38.00: wrong by -13.2 %";
        assert!(!lines[1].contains(said), "the samples carry none: {text}");
        assert!(of_h100.contains("38 +- 4 ms  measured 33.00 ms: wrong by -13.2 %"), "{text}");
        assert!(!text.contains("node conv2d"), "details are not asked for");
    }

    #[test]
    fn details_are_shown_where_they_are_asked_for() {
        let text = text(&[gpu("2026-12-01", "aaa", 66.0)], Some("node conv2d"));
        assert!(text.contains("node conv2d forward, 12x200x336x256"), "{text}");
        assert!(!text.contains("node max_pool"), "{text}");
    }
}
