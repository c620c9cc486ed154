//! `bench history --add`: turns the JSON of a measurement session into one file of the history.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use super::inputs::{is_known, list, same, take, text};
use super::predictions;
use super::schema::{Session, VERSION};

/// The kit's own report.
const REPORT: &str = "report.json";

/// Reads all folders as one session.
///
/// # Errors
/// A folder without figures, unknown JSON, or files of two commits or devices.
pub(super) fn session(folders: &[PathBuf], date: Option<&str>) -> anyhow::Result<Session> {
    let (today, time) = now();
    let mut session = Session { version: VERSION, date: today, time, ..Session::default() };
    if let Some(date) = date {
        ensure!(is_date(date), "--date `{date}` is not YYYY-MM-DD");
        session.date = date.to_string();
    }
    for folder in folders {
        let files = json_files(folder)?;
        ensure!(!files.is_empty(), "{} holds no JSON file", folder.display());
        for file in files {
            add_file(&file, &mut session).map_err(|e| e.context(file.display().to_string()))?;
        }
    }
    drop_repeated(&mut session);
    ensure!(
        !session.device.is_empty() && !session.commit.is_empty(),
        "no file says what device and commit it is of: what peers measure alone is no session"
    );
    if session.machine.is_none() && !session.is_gpu() {
        session.machine = session.device.strip_prefix("cpu: ").map(str::to_string);
    }
    predictions::attach(&mut session);
    Ok(session)
}

/// Writes a session into the folder; returns its path and whether it replaced another file.
///
/// # Errors
/// Another file of the same name that may not be replaced; a file that cannot be written.
pub(super) fn write(
    session: &Session,
    into: &Path,
    replace: bool,
) -> anyhow::Result<(PathBuf, bool)> {
    let path = into.join(session.file_name());
    let there = path.exists();
    ensure!(
        !there || replace,
        "{} is there already: give all folders of the session at once, with --replace",
        path.display()
    );
    std::fs::create_dir_all(into).with_context(|| into.display().to_string())?;
    engine::run_dir::write_whole(&path, session.text()?.as_bytes())?;
    Ok((path, there))
}

fn json_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let at = || folder.display().to_string();
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(at)? {
        let path = entry.with_context(at)?.path();
        if path.is_file() && path.extension().is_some_and(|e| e == "json") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn add_file(path: &Path, session: &mut Session) -> anyhow::Result<()> {
    let value: Value = serde_json::from_slice(&std::fs::read(path)?)?;
    let result = match path.file_name().is_some_and(|name| name == REPORT) {
        true => report(&value, session),
        false => product(&value, session),
    };
    result.map_err(anyhow::Error::msg)
}

/// A command's own JSON, or an object of several, each under its name.
fn product(value: &Value, session: &mut Session) -> Result<(), String> {
    let parts = value.as_object().filter(|object| object.values().any(is_known));
    let Some(parts) = parts.filter(|_| !is_known(value)) else { return take(value, session) };
    let mut each = parts.iter();
    each.try_for_each(|(name, part)| take(part, session).map_err(|e| format!("`{name}` {e}")))
}

/// The kit's table: figures of its benches, clocks, and failures.
fn report(value: &Value, session: &mut Session) -> Result<(), String> {
    same("commit", &text(value, "/commit")?, &mut session.commit)?;
    let mut fastest = 0.0;
    for stage in list(value, "/stages")? {
        let (name, result) = (text(stage, "/stage")?, text(stage, "/result")?);
        let figure = text(stage, "/figure")?;
        if result != "ok" {
            session.remarks.push(format!("stage {name} {result}: {figure}"));
        }
        if name == "clocks" && result == "ok" {
            // The tool's own line: name, driver, and more.
            session.driver = figure.split(", ").nth(1).map(str::to_string);
        }
        let details = &stage["details"];
        if is_known(details) {
            take(details, session)?;
        }
        let sm = stage.pointer("/clocks/sm_mhz/1").and_then(Value::as_f64).unwrap_or(0.0);
        if sm > fastest {
            fastest = sm;
            let of = |key: &str, unit: &str| three(&stage["clocks"][key], unit);
            let memory = of("memory_mhz", "MHz");
            session.clocks = Some(format!("SM {}, memory {memory} ({name})", of("sm_mhz", "MHz")));
            session.power = Some(format!("{} ({name})", of("power_w", "W")));
        }
    }
    Ok(())
}

/// Minimum, median and maximum.
fn three(value: &Value, unit: &str) -> String {
    let at = |i: usize| value[i].as_f64().unwrap_or(f64::NAN);
    format!("{:.0} {unit} ({:.0} to {:.0})", at(1), at(0), at(2))
}

/// The kit's report repeats what single files contain.
fn drop_repeated(session: &mut Session) {
    fn once<T: PartialEq>(list: &mut Vec<T>) {
        let mut i = 0;
        while i < list.len() {
            if list[..i].contains(&list[i]) {
                list.remove(i);
            } else {
                i += 1;
            }
        }
    }
    once(&mut session.steps);
    once(&mut session.infer);
    once(&mut session.peers);
    once(&mut session.nodes);
    once(&mut session.ops);
    once(&mut session.probe);
    once(&mut session.remarks);
}

/// Day and time, UTC.
fn now() -> (String, String) {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs());
    let minutes = seconds / 60 % (24 * 60);
    (day(seconds / 86_400), format!("{:02}:{:02}", minutes / 60, minutes % 60))
}

/// Days since 1970 as a date of the Gregorian calendar.
fn day(mut days: u64) -> String {
    let is_leap = |y: u64| y.is_multiple_of(4) && (!y.is_multiple_of(100) || y.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year:04}-{month:02}-{:02}", days + 1)
}

/// `YYYY-MM-DD`, with a valid month and day.
pub(super) fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts[..] else { return false };
    let number = |part: &str, digits: usize| {
        let all = part.len() == digits && part.bytes().all(|b| b.is_ascii_digit());
        all.then(|| part.parse::<u32>().unwrap_or(0))
    };
    number(year, 4).is_some()
        && number(month, 2).is_some_and(|m| (1..=12).contains(&m))
        && number(day, 2).is_some_and(|d| (1..=31).contains(&d))
}

/// The sessions of the history, oldest first.
///
/// # Errors
/// A file that does not follow this version's schema, or has the wrong name.
pub(super) fn read_all(folder: &Path) -> anyhow::Result<Vec<Session>> {
    let mut sessions = Vec::new();
    if !folder.is_dir() {
        return Ok(sessions);
    }
    for path in json_files(folder)? {
        let at = || path.display().to_string();
        let session: Session =
            serde_json::from_slice(&std::fs::read(&path).with_context(at)?).with_context(at)?;
        if session.version != VERSION {
            bail!("{}: is of version {}, not {VERSION}", at(), session.version);
        }
        ensure!(is_date(&session.date), "{}: its date `{}` is none", at(), session.date);
        let name = session.file_name();
        ensure!(path.ends_with(&name), "{}: holds what belongs into {name}", at());
        sessions.push(session);
    }
    sessions.sort_by(|a, b| (&a.date, &a.time).cmp(&(&b.date, &b.time)));
    Ok(sessions)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DEVICE: &str = "NVIDIA H100 80GB HBM3, driver for CUDA 12.8";

    fn step(commit: &str, batch: u64) -> Value {
        json!({
            "images_per_second": 180.0, "steps": 100, "step_ms": {"p50": 66.5, "p95": 67.0},
            "data_ms": 0.1, "peak_bytes": 7u64 << 30, "device": DEVICE, "driver": "CUDA 12.8",
            "commit": commit, "preset": "torchvision_r50", "batch_size": batch,
            "padded": ["800x1344"],
        })
    }

    fn report(stages: Value) -> Value {
        json!({"commit": "abc", "seconds": 9.0, "failed": 0, "stages": stages})
    }

    fn stage(name: &str, result: &str, figure: &str, details: Value) -> Value {
        json!({
            "stage": name, "result": result, "seconds": 1.0, "figure": figure, "details": details,
            "clocks": {"sm_mhz": [345.0, 1755.0, 1980.0], "memory_mhz": [2619.0, 2619.0, 2619.0],
                       "power_w": [100.0, 650.4, 700.0], "temperature_c": [40.0, 50.0, 60.0]},
        })
    }

    /// A folder with these files.
    fn folder(files: &[(&str, Value)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (name, value) in files {
            std::fs::write(folder.path().join(name), value.to_string()).expect("a file");
        }
        folder
    }

    fn of(folders: &[&tempfile::TempDir]) -> anyhow::Result<Session> {
        let folders: Vec<PathBuf> = folders.iter().map(|f| f.path().to_path_buf()).collect();
        session(&folders, Some("2026-12-01"))
    }

    fn refused(files: &[(&str, Value)]) -> String {
        format!("{:#}", of(&[&folder(files)]).expect_err("it is refused"))
    }

    #[test]
    fn the_calls_of_a_lease_are_one_session() {
        let said = "NVIDIA H100 80GB HBM3, 550.90.07, 96.00, P0, 40";
        let first = folder(&[
            (
                "report.json",
                report(json!([
                    stage("clocks", "ok", said, Value::Null),
                    stage("ops", "FAILED", "conv2d (3): differs", json!({"items": 608})),
                    stage("bench 12x800x1344", "ok", "180 images/s", step("abc", 12)),
                ])),
            ),
            ("bench-12x800x1344.json", step("abc", 12)),
            (
                "ops.json",
                json!({
                    "device": DEVICE, "commit": "abc", "failed": [],
                    "cases": [{"case": "sum (1)", "ms": 0.5, "flops": 1.0, "bytes": 2}],
                }),
            ),
            ("log.txt", json!("no JSON that counts")),
        ]);
        let second = folder(&[(
            "peers.json",
            json!({
                "eval": {"kind": "torchvision_eval", "torchvision": "0.26.0", "score_threshold": 0.0,
                    "device": "NVIDIA H100 80GB HBM3", "cases": [{
                        "variant": "amp", "part": "masks", "batch_size": 8, "padded": "800x1344",
                        "images_per_second": 40.0, "p50_ms": 200.0, "detections_per_image": 100.0}]},
                "copy": {"kind": "figures", "product": "torch 2.11",
                    "figures": [{"what": "copy of 4 GB", "value": 2800.0, "unit": "GB/s"}]},
                "skipped": null,
            }),
        )]);
        let session = of(&[&first, &second]).expect("a session");
        assert_eq!(session.device_name(), "NVIDIA H100 80GB HBM3");
        assert_eq!(
            (session.driver.as_deref(), session.cuda.as_deref()),
            (Some("550.90.07"), Some("CUDA 12.8"))
        );
        assert_eq!(session.steps.len(), 1, "the report repeats it");
        assert_eq!(session.steps[0].prediction.as_ref().map(|p| p.value), Some(38.0));
        assert_eq!((session.ops.len(), session.counts["ops failed, cases"]), (1, 0.0));
        let peers: Vec<f64> = session.peers.iter().map(|peer| peer.value).collect();
        assert_eq!(peers, [2800.0, 40.0]);
        assert_eq!(session.remarks, ["stage ops FAILED: conv2d (3): differs"]);
        let clocks = session.clocks.as_deref().expect("clocks");
        assert!(clocks.starts_with("SM 1755 MHz (345 to 1980), memory 2619 MHz"), "{clocks}");
        assert!(session.power.as_deref().is_some_and(|p| p.starts_with("650 W (100 to 700)")));
    }

    #[test]
    fn what_is_not_known_is_refused_in_one_sentence() {
        let odd = refused(&[("a.json", step("abc", 4)), ("b.json", json!({"colour": 1}))]);
        assert!(odd.ends_with("b.json: holds no figures that this version knows"), "{odd}");
        let kind = refused(&[("a.json", json!({"kind": "dream"}))]);
        assert!(kind.ends_with("of a kind that this version does not know, `dream`"), "{kind}");
        let mut short = step("abc", 4);
        short["data_ms"] = Value::Null;
        let short = refused(&[("a.json", short)]);
        assert!(short.ends_with("a.json: has no number at `/data_ms`"), "{short}");
        let part = json!({"step": step("abc", 4), "other": {"colour": 1}});
        let part = refused(&[("peers.json", part)]);
        assert!(part.contains("`other` holds no figures"), "{part}");
        let mixed = refused(&[("a.json", step("abc", 4)), ("b.json", step("def", 4))]);
        assert!(
            mixed.ends_with("is of the commit `def`, other files of `abc`: add each by itself")
        );
        assert!(refused(&[]).ends_with("holds no JSON file"));
        let peers = json!({"kind": "figures", "product": "x", "figures": []});
        assert!(refused(&[("a.json", peers)]).contains("what peers measure alone is no session"));
    }

    #[test]
    fn a_file_of_the_history_is_replaced_only_when_told_to() {
        let into = tempfile::tempdir().expect("a temporary folder");
        let mut session = of(&[&folder(&[("a.json", step("abc", 4))])]).expect("a session");
        let (path, replaced) = write(&session, into.path(), false).expect("written");
        assert!(path.ends_with("2026-12-01-nvidia-h100-80gb-hbm3-abc.json") && !replaced);
        assert_eq!(read_all(into.path()).expect("a history"), [session.clone()]);
        session.remarks.push("again".into());
        let fault = write(&session, into.path(), false).expect_err("it is there").to_string();
        assert!(fault.contains("is there already"), "{fault}");
        assert!(read_all(into.path()).expect("a history")[0].remarks.is_empty());
        assert!(write(&session, into.path(), true).expect("replaced").1);
        assert_eq!(read_all(into.path()).expect("a history")[0].remarks, ["again"]);
    }

    #[test]
    fn a_history_that_is_not_ours_is_refused() {
        let session = super::super::samples::gpu("2026-12-01", "abc", 66.0);
        let fault = |name: &str, change: &dyn Fn(&mut Session)| {
            let into = tempfile::tempdir().expect("a temporary folder");
            let mut session = session.clone();
            change(&mut session);
            let path = into.path().join(name);
            std::fs::write(path, session.text().expect("text")).expect("a file");
            format!("{:#}", read_all(into.path()).expect_err("it is refused"))
        };
        let name = session.file_name();
        assert!(fault("other.json", &|_| ()).ends_with(&format!("belongs into {name}")));
        assert!(fault(&name, &|s| s.version = 9).ends_with("is of version 9, not 1"));
        assert!(fault(&name, &|s| s.date = "1.12.2026".into()).contains("its date `1.12.2026`"));
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        let dates = [0, 59, 789, 11_016, 20_778].map(day);
        assert_eq!(dates, ["1970-01-01", "1970-03-01", "1972-02-29", "2000-02-29", "2026-11-21"]);
        assert!(is_date("2026-11-21"));
        for wrong in ["", "2026-13-01", "2026-11-32", "26-11-21", "2026-11-21-1", "2026-1a-01"] {
            assert!(!is_date(wrong), "{wrong}");
        }
    }
}
