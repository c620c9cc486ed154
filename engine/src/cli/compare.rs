//! `onegraph compare`: differences between runs in config, scores and speed.

use std::path::PathBuf;

use clap::Args;
use dali::plain;
use score::ScoreDifference;

use crate::EngineError;
use crate::comparison::{ComparedRun, ComparedWithFirst, compare_runs, verdict};
use crate::page::ComparisonPage;
use crate::progress::Progress;
use crate::run_dir::write_whole;

#[derive(Debug, Args)]
pub(super) struct CompareArgs {
    /// Directories of finished runs; each is compared with the first.
    #[arg(value_name = "RUN", num_args = 2.., required = true)]
    runs: Vec<PathBuf>,
    /// Write an HTML page with the tables and curves of all runs to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Number of bootstrap resamples of the images for the confidence intervals.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    samples: u32,
}

pub(super) fn run(args: &CompareArgs) -> Result<(), EngineError> {
    let (runs, compared) = compare_runs(&args.runs, args.samples as usize, &Progress::loud())?;
    for (other, found) in runs[1..].iter().zip(&compared) {
        super::print(&text(found, &runs[0], other))?;
    }
    let Some(path) = &args.html else { return Ok(()) };
    write_whole(path, ComparisonPage { runs: &runs, compared: &compared }.html().as_bytes())
}

/// The printed comparison of run `other` with the first run.
fn text(found: &ComparedWithFirst, first: &ComparedRun, other: &ComparedRun) -> String {
    let names = [first, other].map(|run| run.name.as_str());
    let mut lines = vec![format!("{} and {}", names[0], names[1])];
    if found.keys.is_empty() {
        lines.push("their configs are the same".into());
    }
    lines.extend(found.keys.iter().map(|key| format!("  {key}")));
    let speed = |run: &ComparedRun| run.report["images_per_second"].as_f64().unwrap_or(0.0);
    let step = |run: &ComparedRun| run.report["evaluated_step"].to_string();
    let row = |name: &str, [a, b]: [String; 2]| format!("{name:<12} {a:>9} {b:>9}");
    lines.push(String::new());
    lines.push(row("", [1, 2].map(|i| format!("({i})"))) + "  difference  95 % interval");
    lines.push(row("step", [step(first), step(other)]));
    lines.push(row("images/s", [first, other].map(|run| format!("{:.1}", speed(run)))));
    for scores in &found.scores {
        let shape = scores.iou_type.shape();
        for stat in &scores.stats {
            lines.push(score_line(&format!("{shape} {}", stat.name), stat));
        }
    }
    // AP by class is listed only for the last IoU type: masks or keypoints if the model has
    // them, else boxes.
    if let Some(scores) = found.scores.last() {
        lines.push(format!("\nAP of {} by class", scores.iou_type.shapes()));
        lines.extend(scores.classes.iter().map(|class| score_line(&plain(&class.name), class)));
    }
    lines.push(String::new());
    lines.extend(found.scores.iter().map(|scores| verdict(scores, names)));
    lines.join("\n") + "\n\n"
}

/// One line: a score of both runs, and the difference.
fn score_line(name: &str, stat: &ScoreDifference) -> String {
    let number = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.3}"));
    let [first, second] = stat.scores.map(number);
    let mut line = format!("{name:<12} {first:>9} {second:>9}");
    if let Some(difference) = stat.difference() {
        line += &format!("  {difference:>+10.3}");
    }
    if let Some([low, high]) = stat.interval {
        line += &format!("  {low:+.3} to {high:+.3}");
    }
    line
}
