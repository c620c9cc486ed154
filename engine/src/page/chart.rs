//! Line charts as inline SVG.

use std::fmt::Write;

use crate::metrics::median;
use crate::picture::{escape, labels, ticks, to_ticks};

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 240.0;
/// Margins left, right, top and bottom.
const MARGINS: [f64; 4] = [62.0, 12.0, 10.0, 34.0];
/// Maximum number of points of a line; more would not be visible at this width.
const MAX_POINTS: usize = 400;
/// Width of a label's character, in the largest font size of the style sheet.
const LABEL_WIDTH: f64 = 8.0;
/// Colours of the lines, readable on light and dark backgrounds.
pub(super) const COLOURS: [&str; 8] =
    ["#2f7ed8", "#e4572e", "#3aa655", "#9b5de5", "#e0a100", "#00a6a6", "#d6336c", "#7a7f87"];

/// One line of a chart.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// Names and extents of the axes; an extent of `None` is computed from the points.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axes {
    pub(super) x_name: &'static str,
    pub(super) y_name: &'static str,
    pub(super) x: Option<(f64, f64)>,
    pub(super) y: Option<(f64, f64)>,
}

/// A chart with axes, grid and legend. Non-finite points are omitted.
pub(super) fn chart(title: &str, axes: Axes, lines: &[Line]) -> String {
    let (lines, per_point) = thinned(lines);
    let all = || lines.iter().flat_map(|line| &line.points);
    if all().next().is_none() {
        return String::new();
    }
    let frame = Frame {
        x: axes.x.unwrap_or(span(all().map(|p| p.0))),
        y: axes.y.unwrap_or_else(|| to_ticks(span(all().map(|p| p.1)))),
    };
    let mut svg = format!(
        "<figure class=\"chart\"><figcaption>{}</figcaption>\
         <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
        escape(title),
        escape(title)
    );
    svg += &frame.axes(axes);
    // `write!` to a string cannot fail, so its results are ignored.
    for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        let at = |p: &(f64, f64)| format!("{:.1},{:.1}", frame.x_at(p.0), frame.y_at(p.1));
        let points: Vec<String> = line.points.iter().map(at).collect();
        let _ = match line.points.as_slice() {
            [only] => write!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>",
                frame.x_at(only.0),
                frame.y_at(only.1)
            ),
            _ => write!(svg, "<polyline points=\"{}\" stroke=\"{colour}\"/>", points.join(" ")),
        };
    }
    svg += "</svg><div class=\"legend\">";
    for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        let _ =
            write!(svg, "<span><i style=\"background:{colour}\"></i>{}</span>", escape(&line.name));
    }
    if per_point > 1 {
        let _ = write!(svg, "<span>each point: the median of {per_point} {}s</span>", axes.x_name);
    }
    svg + "</div></figure>"
}

/// Maps the extents of both axes to pixels of the chart.
#[derive(Debug, Clone, Copy)]
struct Frame {
    x: (f64, f64),
    y: (f64, f64),
}

impl Frame {
    fn x_at(&self, value: f64) -> f64 {
        let ([left, right, ..], (low, high)) = (MARGINS, self.x);
        left + (value - low) / (high - low) * (WIDTH - left - right)
    }

    fn y_at(&self, value: f64) -> f64 {
        let ([.., top, bottom], (low, high)) = (MARGINS, self.y);
        let share = (value.clamp(low, high) - low) / (high - low);
        HEIGHT - bottom - share * (HEIGHT - top - bottom)
    }

    /// Draws grid, labels and names of the axes.
    fn axes(&self, axes: Axes) -> String {
        let [left, right, top, bottom] = MARGINS;
        let mut svg = String::new();
        let y_ticks = ticks(self.y.0, self.y.1);
        for (tick, label) in y_ticks.iter().zip(labels(&y_ticks)) {
            let at = self.y_at(*tick);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{left}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                WIDTH - right,
                left - 5.0,
                at + 4.0,
            );
        }
        let x_ticks = ticks(self.x.0, self.x.1);
        for (tick, label) in x_ticks.iter().zip(labels(&x_ticks)) {
            // The last label is moved left, as it would extend beyond the picture.
            let most = WIDTH - 0.5 * LABEL_WIDTH * label.chars().count() as f64;
            let _ = write!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
                self.x_at(*tick).min(most),
                HEIGHT - bottom + 16.0,
            );
        }
        let middle = top + 0.5 * (HEIGHT - top - bottom);
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <text transform=\"translate(12 {middle:.1}) rotate(-90)\" text-anchor=\"middle\">{}\
             </text>",
            WIDTH - right,
            HEIGHT - 4.0,
            escape(axes.x_name),
            escape(axes.y_name)
        );
        svg
    }
}

/// Reduces lines to at most [`MAX_POINTS`] points; each is the median of a bin, placed at the bin's
/// end. Also returns the size of the largest bin.
fn thinned(lines: &[Line]) -> (Vec<Line>, usize) {
    let mut largest = 1;
    let of_bin =
        |bin: &[(f64, f64)]| (bin[bin.len() - 1].0, median(bin.iter().map(|p| p.1).collect()));
    let thin = |line: &Line| {
        let points: Vec<(f64, f64)> =
            line.points.iter().copied().filter(|p| p.0.is_finite() && p.1.is_finite()).collect();
        let size = points.len().div_ceil(MAX_POINTS).max(1);
        largest = largest.max(size);
        Line { name: line.name.clone(), points: points.chunks(size).map(of_bin).collect() }
    };
    let lines = lines.iter().map(thin).collect();
    (lines, largest)
}

/// The range from the smallest value (0 if all are positive) to the largest; never empty.
fn span(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) =
        values.fold((0.0_f64, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    if high > low { (low, high) } else { (low, low + 1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AXES: Axes = Axes { x_name: "step", y_name: "loss", x: None, y: None };

    fn line(name: &str, points: &[(f64, f64)]) -> Line {
        Line { name: name.to_string(), points: points.to_vec() }
    }

    #[test]
    fn chart_draws_lines_and_accepts_non_finite_points() {
        let lines = [
            line("<loss>", &[(1.0, 2.0), (2.0, f64::NAN), (3.0, 1.0)]),
            line("one", &[(2.0, 1.5)]),
        ];
        let svg = chart("Loss", AXES, &lines);
        roxmltree::Document::parse(&svg).expect("well-formed");
        assert!(svg.contains("&lt;loss&gt;") && !svg.contains("<loss>") && !svg.contains("NaN"));
        assert_eq!(svg.matches("<polyline").count(), 1);
        assert_eq!(svg.matches("<circle").count(), 1);
        assert!(svg.contains(">loss</text>") && svg.contains(">step</text>"));
        assert!(!svg.contains("median"), "every point is drawn");
        assert_eq!(chart("empty", AXES, &[line("none", &[])]), "");
    }

    #[test]
    fn long_curve_is_downsampled_and_noted() {
        let long: Vec<_> = (1..=100_001).map(|i| (f64::from(i), 1.0)).collect();
        let svg = chart("long", AXES, &[line("l", &long)]);
        assert!(svg.len() < 20_000 && svg.contains("each point: the median of 251 steps"));
        let (lines, _) = thinned(&[line("l", &long)]);
        assert_eq!(lines[0].points.last(), Some(&(100_001.0, 1.0)));
    }

    #[test]
    fn chart_labels_stay_inside_picture() {
        let svg = chart("Loss", AXES, &[line("l", &[(0.0, 1.0), (40_000.0, 2.0)])]);
        let document = roxmltree::Document::parse(&svg).expect("well-formed");
        let texts = document.descendants().filter(|node| node.has_tag_name("text"));
        let mut seen = 0;
        for text in texts.filter(|text| text.attribute("text-anchor") == Some("middle")) {
            let Some(x) = text.attribute("x").and_then(|x| x.parse::<f64>().ok()) else { continue };
            let half = 0.5 * LABEL_WIDTH * text.text().expect("a label").len() as f64;
            assert!(x + half <= WIDTH && x - half >= 0.0, "{text:?}");
            seen += 1;
        }
        assert_eq!(seen, 5, "0, 10000 .. 40000");
    }
}
