//! `onegraph runs`: lists the runs in a folder with their state.

use std::path::PathBuf;

use clap::Args;
use dali::plain;
use jiff::tz::TimeZone;
use score::IouType;
use serde_json::Value;

use crate::EngineError;
use crate::metrics::duration;
use crate::run_summary::RunSummary;

#[derive(Debug, Args)]
pub(super) struct RunsArgs {
    /// Folder that directly contains run directories, or a run directory.
    #[arg(value_name = "DIR", default_value = "runs")]
    folder: PathBuf,
    /// Print JSON, with `eta_seconds` and with `written` in UTC.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &RunsArgs) -> Result<(), EngineError> {
    if !args.folder.is_dir() {
        let folder = args.folder.display();
        let problem =
            format!("{folder}: no such folder; give the folder that contains run directories");
        return Err(EngineError::Usage(problem));
    }
    let runs = RunSummary::of_folder(&args.folder)?;
    super::print(&match args.json {
        true => serde_json::to_string_pretty(&runs).unwrap_or_default() + "\n",
        false if runs.is_empty() => {
            format!(
                "no run directories in {}: give the folder that directly contains them\n",
                args.folder.display()
            )
        }
        false => table(&runs),
    })
}

/// The table as text, with columns as wide as their widest cell.
fn table(runs: &[RunSummary]) -> String {
    let has_keypoints = |run: &RunSummary| {
        [&run.last, &run.best].iter().any(|scores| !scores[IouType::Keypoints.name()].is_null())
    };
    let mut kinds = vec![IouType::Bbox, IouType::Segm];
    kinds.extend(runs.iter().any(has_keypoints).then_some(IouType::Keypoints));
    let mut titles = ["run", "state", "step", "loss"].map(String::from).to_vec();
    titles.extend(kinds.iter().map(|kind| kind.shape().to_string()));
    titles.extend(kinds.iter().map(|kind| format!("best {}", kind.shape())));
    titles.extend(["of step", "images/s", "eta", "written"].map(String::from));
    let cells = runs.iter().map(|run| cells(run, &kinds));
    let rows: Vec<Vec<String>> = std::iter::once(titles).chain(cells).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..rows[0].len()).filter_map(width).collect();
    let line = |row: &Vec<String>| {
        let padded = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            // Text is left-aligned, numbers are right-aligned.
            if column < 2 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        padded.collect::<Vec<_>>().join("  ") + "\n"
    };
    rows.iter().map(line).collect()
}

fn cells(run: &RunSummary, kinds: &[IouType]) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let number = |value: &Value, digits: usize| match value {
        Value::String(text) => text.clone(),
        value => or_dash(value.as_f64().map(|value| format!("{value:.digits$}"))),
    };
    let count = |count: Option<u64>| or_dash(count.map(|count| count.to_string()));
    let name = run.run.file_name().unwrap_or(run.run.as_os_str()).to_string_lossy();
    let mut cells = vec![
        plain(&name),
        plain(&run.state),
        format!("{}/{}", count(run.step), count(run.steps)),
        number(&run.loss, 4),
    ];
    for scores in [&run.last, &run.best] {
        cells.extend(kinds.iter().map(|kind| number(&scores[kind.name()], 3)));
    }
    cells.push(count(run.best["step"].as_u64()));
    cells.push(or_dash(run.images_per_second.map(|speed| format!("{speed:.1}"))));
    cells.push(or_dash(run.eta_seconds.map(duration)));
    let written = run.written.to_zoned(TimeZone::system());
    cells.push(written.strftime("%Y-%m-%d %H:%M:%S").to_string());
    cells
}
