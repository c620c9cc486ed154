//! `bench curves`: AP over training steps for groups of runs with the same configuration: mean and
//! range of each group.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use engine::picture::{Canvas, Style, WIDTH, labels, ticks, to_ticks};
use serde_json::Value;

/// Edges of the plot area in the drawing, in pixels.
const LEFT: f64 = 56.0;
const RIGHT: f64 = WIDTH - 20.0;
const TOP: f64 = 76.0;
const BOTTOM: f64 = 420.0;
/// Height of a line of the legend.
const LEGEND_LINE: f64 = 20.0;
/// Colours of the groups: distinguishable for most people, dark enough on white.
const COLOURS: [&str; 6] = ["#2f6db3", "#b4530a", "#3b7d3b", "#8a3fa0", "#a07c00", "#6b6b6b"];

#[derive(Debug, Args)]
pub(crate) struct CurvesArgs {
    /// A name for the group, and the folders of its runs.
    #[arg(required = true, value_name = "NAME=RUN[,RUN..]", value_parser = parse_group)]
    groups: Vec<Group>,
    /// The AP to draw.
    #[arg(long, value_enum, default_value = "bbox")]
    metric: Metric,
    /// Draw the curves into this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// The drawing's title.
    #[arg(long, value_name = "TEXT", default_value = "AP over training")]
    title: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Metric {
    Bbox,
    Segm,
}

impl Metric {
    fn key(self) -> &'static str {
        match self {
            Metric::Bbox => "bbox",
            Metric::Segm => "segm",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Metric::Bbox => "box AP",
            Metric::Segm => "mask AP",
        }
    }
}

#[derive(Debug, Clone)]
struct Group {
    name: String,
    runs: Vec<PathBuf>,
}

fn parse_group(text: &str) -> Result<Group, String> {
    let (name, runs) = text.split_once('=').ok_or("expected NAME=RUN[,RUN..]")?;
    let runs: Vec<PathBuf> = runs.split(',').map(Into::into).collect();
    let is_named = !name.is_empty() && !name.contains(|c: char| c == '|' || c.is_control());
    match !is_named || runs.iter().any(|run| run.as_os_str().is_empty()) {
        true => Err("expected NAME=RUN[,RUN..]".into()),
        false => Ok(Group { name: name.to_string(), runs }),
    }
}

/// Mean, minimum and maximum score of a group's runs at a step.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    step: u64,
    mean: f64,
    least: f64,
    most: f64,
}

pub(crate) fn run(args: &CurvesArgs) -> anyhow::Result<()> {
    say!("| | runs | step | box AP (minimum to maximum) | mask AP (minimum to maximum) |");
    say!("|---|---|---|---|---|");
    for group in &args.groups {
        let last = |metric| Some((*points(group, metric).ok()?.last()?, group.runs.len()));
        let (bbox, segm) = (last(Metric::Bbox), last(Metric::Segm));
        let Some((Point { step, .. }, runs)) = bbox.or(segm) else {
            // Neither score is available: returns the error for the box AP.
            points(group, Metric::Bbox)?;
            continue;
        };
        let [bbox, segm] = [bbox, segm].map(|last| last.map_or("-".to_string(), cell));
        say!("| {} | {runs} | {step} | {bbox} | {segm} |", group.name);
    }
    let Some(path) = &args.svg else { return Ok(()) };
    let curves = args.groups.iter().map(|group| {
        let runs = group.runs.len();
        let name =
            if runs > 1 { format!("{}, {runs} runs", group.name) } else { group.name.clone() };
        Ok((name, points(group, args.metric)?))
    });
    let curves = curves.collect::<anyhow::Result<Vec<_>>>()?;
    let svg = draw(&args.title, args.metric.name(), &curves);
    engine::run_dir::write_whole(path, svg.as_bytes()).with_context(|| path.display().to_string())
}

/// A table cell: the final score of a group of `runs` runs.
fn cell((Point { mean, least, most, .. }, runs): (Point, usize)) -> String {
    match runs {
        1 => format!("{mean:.3}"),
        _ => format!("{mean:.3} ({least:.3} to {most:.3})"),
    }
}

/// The scores at the steps at which all runs of the group were evaluated.
fn points(group: &Group, metric: Metric) -> anyhow::Result<Vec<Point>> {
    let mut at: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for run in &group.runs {
        for (step, ap) in scores(run, metric)? {
            at.entry(step).or_default().push(ap);
        }
    }
    let whole = at.into_iter().filter(|(_, scores)| scores.len() == group.runs.len());
    let points: Vec<Point> = whole
        .map(|(step, scores)| Point {
            step,
            mean: scores.iter().sum::<f64>() / scores.len() as f64,
            least: scores.iter().copied().fold(f64::INFINITY, f64::min),
            most: scores.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
        .collect();
    ensure!(!points.is_empty(), "the runs of {} have no evaluated step in common", group.name);
    Ok(points)
}

/// The AP at each evaluated step of a run; repeated evaluations count once.
fn scores(run: &Path, metric: Metric) -> anyhow::Result<BTreeMap<u64, f64>> {
    let path = run.join("metrics.jsonl");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let records = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let scores: BTreeMap<u64, f64> = records
        .filter_map(|record| Some((record["step"].as_u64()?, record[metric.key()]["AP"].as_f64()?)))
        .collect();
    let name = metric.name();
    ensure!(!scores.is_empty(), "{}: no evaluation has a {name}", path.display());
    // -1 is undefined.
    if let Some((step, ap)) = scores.iter().find(|(_, ap)| !(-1.0..=1.0).contains(*ap)) {
        bail!("{}: the {name} of step {step} is {ap}, not a fraction", path.display());
    }
    Ok(scores)
}

/// The curves as a self-contained SVG.
fn draw(title: &str, score: &str, curves: &[(String, Vec<Point>)]) -> String {
    let all = || curves.iter().flat_map(|(_, points)| points);
    let last_step = all().map(|p| p.step).max().unwrap_or(1).max(1) as f64;
    let (_, highest) = to_ticks((0.0, all().map(|p| p.most).fold(0.1, f64::max)));
    let x = |step: f64| LEFT + step / last_step * (RIGHT - LEFT);
    let y = |ap: f64| BOTTOM - ap.max(0.0) / highest * (BOTTOM - TOP);
    let height = BOTTOM + 44.0 + LEGEND_LINE * curves.len() as f64;
    let mut canvas = Canvas::new(height, title, &[score]);
    let at = ticks(0.0, highest);
    for (ap, label) in at.iter().zip(labels(&at)) {
        canvas.path(&format!("M{LEFT} {:.1}H{RIGHT}", y(*ap)), "#dddddd", 1.0);
        canvas.text(LEFT - 6.0, y(*ap) + 4.0, Style::SMALL.end(), &label);
    }
    let at = ticks(0.0, last_step);
    for (step, label) in at.iter().zip(labels(&at)) {
        let x = x(*step).min(WIDTH - Style::SMALL.width(&label) / 2.0);
        canvas.text(x, BOTTOM + 18.0, Style::SMALL.middle(), &label);
    }
    canvas.text(RIGHT, BOTTOM + 34.0, Style::SMALL.end(), "step");
    for (i, (name, points)) in curves.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        let at = |step: u64, ap: f64| format!("{:.1} {:.1}", x(step as f64), y(ap));
        let above = points.iter().map(|p| at(p.step, p.most));
        let below = points.iter().rev().map(|p| at(p.step, p.least));
        let band: Vec<String> = above.chain(below).collect();
        canvas.area(&format!("M{}Z", band.join("L")), colour, 0.18);
        let mean: Vec<String> = points.iter().map(|p| at(p.step, p.mean)).collect();
        canvas.path(&format!("M{}", mean.join("L")), colour, 2.0);
        canvas.legend(LEFT, BOTTOM + 50.0 + LEGEND_LINE * i as f64, &[(colour, name)]);
    }
    canvas.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_of(folder: &Path, name: &str, scores: &[(u64, f64)]) -> PathBuf {
        let run = folder.join(name);
        std::fs::create_dir_all(&run).expect("a folder");
        let line = |(step, ap): &(u64, f64)| {
            format!(
                "{{\"step\":{step},\"bbox\":{{\"AP\":{ap}}}}}\n{{\"step\":{step},\"loss\":1}}\n"
            )
        };
        let lines: String = scores.iter().map(line).collect();
        std::fs::write(run.join("metrics.jsonl"), lines).expect("room");
        run
    }

    #[test]
    fn group_curve_is_mean_of_runs_at_common_steps() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = run_of(folder.path(), "a", &[(10, 0.25), (20, 0.5), (30, 0.75)]);
        // Step 10 was evaluated twice, since the run was resumed before it.
        let second = run_of(folder.path(), "b", &[(10, 0.75), (10, 0.5), (20, 0.25)]);
        let text = format!("x<y={},{}", first.display(), second.display());
        let group = parse_group(&text).expect("a group");
        let points = points(&group, Metric::Bbox).expect("scores");
        assert_eq!(
            points,
            [
                Point { step: 10, mean: 0.375, least: 0.25, most: 0.5 },
                Point { step: 20, mean: 0.375, least: 0.25, most: 0.5 },
            ]
        );
        let svg = draw("A & B", "box AP", &[(group.name.clone(), points)]);
        let colour = COLOURS[0];
        let line = format!("fill=\"none\" stroke=\"{colour}\"");
        let band = format!("fill=\"{colour}\" fill-opacity");
        assert_eq!((svg.matches(&line).count(), svg.matches(&band).count()), (1, 1));
        assert!(svg.contains("A &amp; B") && svg.contains("x&lt;y") && svg.ends_with("</svg>\n"));
        let missing = super::points(&group, Metric::Segm).expect_err("no mask AP was written");
        assert!(missing.to_string().contains("mask AP"));
        for bad in ["name", "name=", "=run", "a=b,,c", "a|b=c"] {
            assert!(parse_group(bad).is_err(), "{bad}");
        }
        let wild = Group { name: "x".into(), runs: vec![run_of(folder.path(), "c", &[(0, 37.7)])] };
        let fault = super::points(&wild, Metric::Bbox).expect_err("percent").to_string();
        assert!(fault.contains("step 0 is 37.7, not a fraction"), "{fault}");
    }
}
