//! `bench history`: the measurements in git, one JSON file per session with the date, the device
//! and the unmodified output files of the commands; compares sessions measured on the same device.

#[cfg(test)]
mod figures;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::Args;
use jiff::{Timestamp, civil::Date, tz::TimeZone};
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// Create a session from the JSON files in these folders, which `tools/gpu.sh` or commands with
    /// --json wrote; give all folders of the session at once.
    #[arg(long, value_name = "FOLDER", num_args = 1..)]
    add: Vec<PathBuf>,
    /// The folder of the history.
    #[arg(long, value_name = "FOLDER", default_value = "bench/history")]
    into: PathBuf,
    /// Day of the measurements, YYYY-MM-DD; default today, UTC.
    #[arg(long, requires = "add")]
    date: Option<Date>,
    /// A remark for readers of the session.
    #[arg(long, value_name = "TEXT", requires = "add")]
    remark: Vec<String>,
    /// Replace the session's file if it already exists.
    #[arg(long, requires = "add")]
    replace: bool,
    /// Print every figure whose name contains this, not only images/s and medians.
    #[arg(long, value_name = "TEXT", conflicts_with = "add")]
    filter: Option<String>,
}

/// The measurements of one day on one device at one commit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Session {
    /// `YYYY-MM-DD`, UTC.
    date: String,
    device: String,
    commit: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    remarks: Vec<String>,
    /// The output files of the commands, unmodified, by file name.
    files: BTreeMap<String, Value>,
}

/// Name endings of the figures that are printed if no filter is given.
const MAIN: [&str; 3] = ["images_per_second", "step_ms/p50", "p50_ms"];
/// Keys whose value identifies a list element.
const NAMES: [&str; 7] = ["stage", "preset", "case", "variant", "product", "what", "shapes"];

pub(crate) fn run(args: &HistoryArgs) -> anyhow::Result<()> {
    if args.add.is_empty() {
        let sessions = read_all(&args.into)?;
        crate::write_out(&compared(&sessions, args.filter.as_deref()));
        return Ok(());
    }
    let session = session(args)?;
    let slug: String =
        session.device.chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
    let slug = slug.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-");
    let name = format!("{}-{}-{}.json", session.date, slug.to_lowercase(), session.commit);
    let path = args.into.join(name);
    ensure!(
        args.replace || !path.exists(),
        "{} exists; to replace it, give all folders of the session at once, with --replace",
        path.display()
    );
    std::fs::create_dir_all(&args.into).with_context(|| args.into.display().to_string())?;
    let text = serde_json::to_string_pretty(&session)? + "\n";
    engine::run_dir::write_whole(&path, text.as_bytes())?;
    say!("wrote {}: {} files", path.display(), session.files.len());
    Ok(())
}

/// Reads the files of the given folders into one session.
fn session(args: &HistoryArgs) -> anyhow::Result<Session> {
    let today = || Timestamp::now().to_zoned(TimeZone::UTC).date();
    let mut session = Session {
        date: args.date.unwrap_or_else(today).to_string(),
        device: String::new(),
        commit: String::new(),
        remarks: args.remark.clone(),
        files: BTreeMap::new(),
    };
    for path in
        args.add.iter().map(|folder| json_files(folder)).collect::<Result<Vec<_>, _>>()?.concat()
    {
        let value = read::<Value>(&path)?;
        let same = |what: &str, known: &mut String| {
            let Some(own) = value[what].as_str() else { return Ok(()) };
            let of = own.split(", driver").next().unwrap_or(own);
            if known.is_empty() {
                *known = of.to_string();
            }
            ensure!(
                *known == of,
                "{}: its {what} is `{of}`, in other files `{known}`: add them as two sessions",
                path.display()
            );
            Ok(())
        };
        same("device", &mut session.device)?;
        same("commit", &mut session.commit)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        ensure!(
            session.files.insert(name, value.clone()).is_none(),
            "{}: another folder has a file of this name; rename one",
            path.display()
        );
    }
    ensure!(
        !session.device.is_empty() && !session.commit.is_empty(),
        "no file contains the device and the commit: add at least one output file of `bench`"
    );
    Ok(session)
}

fn json_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let at = || folder.display().to_string();
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(at)? {
        let path = entry.with_context(at)?.path();
        if path.is_file() && path.extension().is_some_and(|kind| kind == "json") {
            files.push(path);
        }
    }
    ensure!(!files.is_empty(), "{} contains no JSON file", folder.display());
    files.sort();
    Ok(files)
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let at = || path.display().to_string();
    serde_json::from_slice(&dali::file::read(path).with_context(at)?).with_context(at)
}

/// The sessions of the history, oldest first.
fn read_all(folder: &Path) -> anyhow::Result<Vec<Session>> {
    let paths = json_files(folder)?;
    let mut sessions: Vec<Session> =
        paths.iter().map(|path| read(path)).collect::<anyhow::Result<_>>()?;
    sessions.sort_by(|a, b| a.date.cmp(&b.date));
    Ok(sessions)
}

/// Collects all numbers in a JSON value, each by its path.
fn figures(value: &Value, place: &str, found: &mut BTreeMap<String, f64>) {
    match value {
        Value::Number(number) => {
            found.insert(place.to_string(), number.as_f64().unwrap_or(f64::NAN));
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                figures(field, &format!("{place}/{name}"), found);
            }
        }
        Value::Array(list) => {
            for (i, element) in list.iter().enumerate() {
                let names: Vec<&str> = NAMES.iter().filter_map(|n| element[n].as_str()).collect();
                let name = if names.is_empty() { i.to_string() } else { names.join(", ") };
                figures(element, &format!("{place}/{name}"), found);
            }
        }
        _ => {}
    }
}

/// Each session's figures, with their ratio to the previous session on the same device.
fn compared(sessions: &[Session], filter: Option<&str>) -> String {
    let mut text = String::new();
    let mut last: BTreeMap<&str, BTreeMap<String, f64>> = BTreeMap::new();
    for session in sessions {
        let mut own = BTreeMap::new();
        for (name, value) in &session.files {
            figures(value, name, &mut own);
        }
        text += &format!("{} | {} | commit {}\n", session.date, session.device, session.commit);
        session.remarks.iter().for_each(|remark| text += &format!("  ({remark})\n"));
        let before = last.entry(&session.device).or_default();
        let wanted = |name: &str| match filter {
            Some(filter) => name.contains(filter),
            None => MAIN.iter().any(|end| name.ends_with(end)),
        };
        for (name, figure) in own.iter().filter(|(name, _)| wanted(name)) {
            let ratio =
                before.get(name).map(|earlier| format!("  ({:.3} of previous)", figure / earlier));
            text += &format!("  {figure:>12.4}  {name}{}\n", ratio.unwrap_or_default());
        }
        before.append(&mut own);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Sessions on other devices between the two are skipped.
    #[test]
    fn session_is_compared_with_previous_session_on_same_device() {
        let session = |day: &str, device: &str, rate: f64| Session {
            date: day.into(),
            device: device.into(),
            commit: "abc".into(),
            remarks: vec![],
            files: BTreeMap::from([(
                "step.json".into(),
                json!({"steps": [{"preset": "micro", "images_per_second": rate, "batch": 4}]}),
            )]),
        };
        let sessions = [
            session("2026-01-02", "A", 10.0),
            session("2026-01-03", "B", 7.0),
            session("2026-01-04", "A", 15.0),
        ];
        let told = compared(&sessions, None);
        let ratios: Vec<&str> = told.lines().filter(|line| line.contains("of previous")).collect();
        assert_eq!(ratios.len(), 1, "{told}");
        assert!(
            ratios[0].contains("15.0000  step.json/steps/micro/images_per_second  (1.500"),
            "{told}"
        );
        assert!(compared(&sessions, Some("batch")).contains("4.0000  step.json/steps/micro/batch"));
    }

    /// The sessions in git follow this schema.
    #[test]
    fn history_files_parse() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("history");
        assert!(!read_all(&folder).expect("a history").is_empty());
    }
}
