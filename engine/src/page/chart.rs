//! Line charts as inline SVG.

use std::fmt::Write;

use super::escape;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 240.0;
/// Left, right, top, bottom.
const MARGINS: [f64; 4] = [48.0, 12.0, 10.0, 34.0];
/// Most points of a line: more than pixels show nothing.
const MAX_POINTS: usize = 400;
/// Tick labels per axis, about.
const TICKS: f64 = 5.0;
/// Colours of the lines, far apart and readable on white and on dark.
pub(super) const COLOURS: [&str; 8] =
    ["#2f7ed8", "#e4572e", "#3aa655", "#9b5de5", "#e0a100", "#00a6a6", "#d6336c", "#7a7f87"];

/// One line of a chart.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// The extent of an axis; `None` takes it from the points.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Extent {
    pub(super) y: Option<(f64, f64)>,
    pub(super) x: Option<(f64, f64)>,
}

/// A chart with axes, grid and legend. Points that are not finite are left out.
pub(super) fn chart(title: &str, x_name: &str, lines: &[Line], extent: Extent) -> String {
    let lines: Vec<Line> = lines.iter().map(thinned).collect();
    let all = || lines.iter().flat_map(|line| &line.points);
    if all().next().is_none() {
        return String::new();
    }
    let (x0, x1) = extent.x.unwrap_or(span(all().map(|p| p.0)));
    let (y0, y1) = extent.y.unwrap_or(span(all().map(|p| p.1)));
    let [left, right, top, bottom] = MARGINS;
    let x = |v: f64| left + (v - x0) / (x1 - x0) * (WIDTH - left - right);
    let y = |v: f64| HEIGHT - bottom - (v.clamp(y0, y1) - y0) / (y1 - y0) * (HEIGHT - top - bottom);
    let mut svg = format!(
        "<figure class=\"chart\"><figcaption>{}</figcaption>\
         <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
        escape(title),
        escape(title)
    );
    // Writing to a string cannot fail.
    for tick in ticks(y0, y1) {
        let at = y(tick);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{left}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - right,
            left - 6.0,
            at + 4.0,
            label(tick)
        );
    }
    for tick in ticks(x0, x1) {
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x(tick),
            HEIGHT - bottom + 16.0,
            label(tick)
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
        WIDTH - right,
        HEIGHT - 4.0,
        escape(x_name)
    );
    for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        let points: Vec<String> =
            line.points.iter().map(|p| format!("{:.1},{:.1}", x(p.0), y(p.1))).collect();
        let _ = match line.points.as_slice() {
            [only] => write!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>",
                x(only.0),
                y(only.1)
            ),
            _ => write!(svg, "<polyline points=\"{}\" stroke=\"{colour}\"/>", points.join(" ")),
        };
    }
    svg += "</svg><div class=\"legend\">";
    for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        let _ =
            write!(svg, "<span><i style=\"background:{colour}\"></i>{}</span>", escape(&line.name));
    }
    svg + "</div></figure>"
}

/// At most [`MAX_POINTS`] points: medians of as many bins.
fn thinned(line: &Line) -> Line {
    let points: Vec<(f64, f64)> =
        line.points.iter().copied().filter(|p| p.0.is_finite() && p.1.is_finite()).collect();
    let size = points.len().div_ceil(MAX_POINTS).max(1);
    let median = |bin: &[(f64, f64)]| {
        let mut values: Vec<f64> = bin.iter().map(|p| p.1).collect();
        values.sort_by(f64::total_cmp);
        (bin[bin.len() / 2].0, values[values.len() / 2])
    };
    Line { name: line.name.clone(), points: points.chunks(size).map(median).collect() }
}

/// From 0, or a lower value, to the greatest; never empty.
fn span(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) =
        values.fold((0.0_f64, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    if high > low { (low, high) } else { (low, low + 1.0) }
}

/// Round numbers from `low` to `high`.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let rough = (high - low) / TICKS;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * power).into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(rough);
    let first = (low / step).ceil();
    (0..20).map(|i| (first + f64::from(i)) * step).take_while(|t| *t <= high + 1e-9).collect()
}

fn label(value: f64) -> String {
    let text = match value.abs() {
        v if v >= 1e5 => format!("{:.0}k", value / 1e3),
        v if v < 1e-3 && v > 0.0 => format!("{value:.0e}"),
        _ => format!("{value:.3}"),
    };
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_shows_its_lines_and_survives_odd_points() {
        let line = |name: &str, points: &[(f64, f64)]| Line {
            name: name.to_string(),
            points: points.to_vec(),
        };
        let lines = [
            line("<loss>", &[(1.0, 2.0), (2.0, f64::NAN), (3.0, 1.0)]),
            line("one", &[(2.0, 1.5)]),
        ];
        let svg = chart("Loss", "step", &lines, Extent::default());
        roxmltree::Document::parse(&svg).expect("well-formed");
        assert!(svg.contains("&lt;loss&gt;") && !svg.contains("<loss>") && !svg.contains("NaN"));
        assert_eq!(svg.matches("<polyline").count(), 1);
        assert_eq!(svg.matches("<circle").count(), 1);
        assert_eq!(chart("empty", "step", &[line("none", &[])], Extent::default()), "");
        let long: Vec<_> = (0..100_000).map(|i| (f64::from(i), 1.0)).collect();
        assert!(chart("long", "step", &[line("l", &long)], Extent::default()).len() < 20_000);
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(ticks(0.0, 1.0), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(ticks(0.0, 2400.0), [0.0, 500.0, 1000.0, 1500.0, 2000.0]);
        assert_eq!((label(0.6000000000000001), label(2400.0)), ("0.6".into(), "2400".into()));
        assert_eq!((label(150_000.0), label(0.00002)), ("150k".into(), "2e-5".into()));
    }
}
