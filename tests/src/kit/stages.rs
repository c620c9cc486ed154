//! The list of stages: what each runs, for how long at most, and what its end means.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::report::{Outcome, Row};
use super::{Kit, RunArgs, child};

/// What a bench needs beside its timed seconds: drawing, planning, capturing, warming up.
const BENCH_START_SECONDS: u64 = 45;
/// `compute-sanitizer` ends with this where it found something.
const SANITIZER_FOUND: &str = "9";

/// How much longer stages may take where kernels run on the processor.
const EMULATED_PATIENCE: u32 = 10;

/// One row of the table to be.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) name: String,
    limit: Duration,
    /// None: not to be run here, for this reason.
    command: Result<Command, String>,
    /// JSON that the command leaves in the folder of the report.
    details: Option<String>,
}

/// Stages in the order in which they run: what is cheap and tells most comes first.
///
/// # Errors
/// A program that does not know its own path.
pub(super) fn all(kit: &Kit, args: &RunArgs) -> Result<Vec<Stage>, String> {
    let own = env::current_exe().map_err(|e| format!("this program's own path: {e}"))?;
    let folder = own.parent().unwrap_or(Path::new(".")).to_path_buf();
    let bin = args.bin.clone().unwrap_or(folder);
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or(path.to_path_buf());
    let named =
        |given: &Option<PathBuf>, name: &str| absolute(given.as_ref().unwrap_or(&bin.join(name)));
    let (onegraph, bench) = (named(&args.onegraph, "onegraph"), named(&args.bench, "bench"));
    let work = |what: &str| {
        let mut command = Command::new(&own);
        command.args(["work", what]);
        command.arg("--images").arg(absolute(&args.images));
        command.arg("--annotations").arg(absolute(&args.annotations));
        command.args(args.quick.then_some("--quick"));
        command
    };
    let mut doctor = Command::new(onegraph);
    doctor.arg("doctor");
    let mut stages = vec![
        Stage::new("doctor", 30, doctor),
        // The driver compiles all kernels when it sees them for the first time.
        Stage::new("device", 120, work("device")),
        Stage::new("ops", 120, work("ops")),
        Stage::new("step", 60, work("step")),
        Stage::new("train", 90, work("train")),
        Stage::new("repeat", 60, work("repeat")),
        sanitizer(kit, args, "memcheck", work("small-ops")),
        sanitizer(kit, args, "racecheck", work("small-ops")),
    ];
    for (batch, shape) in [(4, "800x1344"), (4, "800x1088"), (12, "800x1344"), (12, "800x1088")] {
        stages.push(full_size(&bench, args.bench_seconds, batch, shape));
    }
    if kit.emulated {
        stages.iter_mut().for_each(|stage| stage.limit *= EMULATED_PATIENCE);
    }
    if args.hang {
        stages.push(Stage::new("hang", 1, work("hang")));
    }
    let wanted = |stage: &Stage| args.only.iter().any(|part| stage.name.contains(part.as_str()));
    stages.retain(|stage| args.only.is_empty() || wanted(stage));
    Ok(stages)
}

/// The small cases under a tool that sees every access to memory.
fn sanitizer(kit: &Kit, args: &RunArgs, tool: &str, work: Command) -> Stage {
    let found = match &args.sanitizer {
        Some(path) => Ok(path.clone()),
        None if kit.emulated => Err("the emulated device is no GPU".into()),
        None => in_path("compute-sanitizer")
            .ok_or_else(|| "compute-sanitizer is not in PATH".to_string()),
    };
    let command = found.map(|program| {
        let mut command = Command::new(program);
        command.args(["--tool", tool, "--error-exitcode", SANITIZER_FOUND, "--"]);
        command.arg(work.get_program()).args(work.get_args());
        command
    });
    Stage { name: tool.into(), limit: Duration::from_secs(60), command, details: None }
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

fn full_size(bench: &Path, seconds: u64, batch: usize, shape: &str) -> Stage {
    let details = format!("bench-{batch}x{shape}.json");
    let mut command = Command::new(bench);
    command.args(["--device", "cuda", "--preset", "torchvision_r50", "--steps", "500"]);
    command.args(["--seconds", &seconds.to_string(), "--padded", shape]);
    command.args(["--set", &format!("train.batch_size={batch}"), "--json", &details]);
    let mut stage =
        Stage::new(&format!("bench {batch}x{shape}"), seconds + BENCH_START_SECONDS, command);
    stage.details = Some(details);
    stage
}

impl Stage {
    fn new(name: &str, seconds: u64, command: Command) -> Self {
        let (name, limit) = (name.to_string(), Duration::from_secs(seconds));
        Self { name, limit, command: Ok(command), details: None }
    }

    /// Runs it in the folder `out`, for `left` at most.
    pub(super) fn run(self, out: &Path, left: Duration) -> Row {
        let Self { name, limit, command, details } = self;
        let row = |outcome, seconds, figure: &str| Row {
            stage: name.clone(),
            outcome,
            seconds,
            figure: figure.to_string(),
            details: Value::Null,
        };
        let mut command = match command {
            Ok(command) => command,
            Err(why) => return row(Outcome::Skipped, 0.0, &format!("SKIPPED: {why}")),
        };
        if left.is_zero() {
            return row(Outcome::Failed, 0.0, "no time was left for it");
        }
        let limit = limit.min(left);
        let log = out.join(format!("{}.log", name.replace(' ', "-")));
        let ended = match child::run(command.current_dir(out), &log, limit) {
            Ok(ended) => ended,
            Err(why) => return row(Outcome::Failed, 0.0, &why),
        };
        let Some(status) = ended.status else {
            let why =
                format!("no end after {} s; last said: {}", limit.as_secs(), ended.last_line());
            return row(Outcome::Failed, ended.seconds, &why);
        };
        if !status.success() {
            let summary = ended.line("========= ERROR SUMMARY: ");
            let said = summary.or(ended.line("error: ")).unwrap_or(ended.last_line());
            let why = match status.code() {
                Some(1) => said.to_string(),
                _ => format!("{said} ({status})"),
            };
            return row(Outcome::Failed, ended.seconds, &why);
        }
        if let Some(why) = ended.line("SKIPPED: ") {
            return row(Outcome::Skipped, ended.seconds, &format!("SKIPPED: {why}"));
        }
        let details = details.and_then(|file| json(&out.join(file))).unwrap_or_default();
        let figure = bench_figure(&details);
        let said = ended.line("figure: ").or(ended.line("auto ")).unwrap_or(ended.last_line());
        Row { details, ..row(Outcome::Passed, ended.seconds, figure.as_deref().unwrap_or(said)) }
    }
}

fn json(path: &Path) -> Option<Value> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// What a bench's figures say in one line.
fn bench_figure(value: &Value) -> Option<String> {
    let mut text = format!(
        "{:.1} images/s, step p50 {:.1} ms p95 {:.1} ms, {} of {} steps, {:.1} GiB",
        value["images_per_second"].as_f64()?,
        value.pointer("/step_ms/p50")?.as_f64()?,
        value.pointer("/step_ms/p95")?.as_f64()?,
        value["steps"].as_u64()?,
        value["steps_asked"].as_u64()?,
        value["peak_bytes"].as_f64()? / (1u64 << 30) as f64,
    );
    let lost = value["steps"].as_u64()? - value["finite_losses"].as_u64()?;
    if lost > 0 {
        text += &format!(", {lost} with losses that are no numbers");
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(script: &str) -> Row {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Stage::new("a b", 1, command).run(folder.path(), Duration::from_secs(9))
    }

    #[test]
    fn the_end_of_a_stage_is_its_result() {
        let said = |script| {
            let row = row(script);
            (row.outcome, row.figure)
        };
        assert_eq!(said("echo figure: 7 ms; echo more"), (Outcome::Passed, "7 ms".into()));
        assert_eq!(
            said("echo x; echo error: no GPU >&2; exit 1"),
            (Outcome::Failed, "no GPU".into())
        );
        assert_eq!(said("echo SKIPPED: no data"), (Outcome::Skipped, "SKIPPED: no data".into()));
        let (outcome, why) = said("echo ========= ERROR SUMMARY: 2 errors; exit 9");
        assert_eq!(outcome, Outcome::Failed);
        assert!(why.starts_with("2 errors (exit"), "{why}");
        let (outcome, why) = said("echo begun; kill -SEGV $$");
        assert!(outcome == Outcome::Failed && why.starts_with("begun (signal"), "{why}");
        let (outcome, why) = said("echo begun; exec sleep 60");
        assert!(outcome == Outcome::Failed && why == "no end after 1 s; last said: begun", "{why}");
    }

    #[test]
    fn what_has_no_time_left_fails() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let row = Stage::new("late", 1, Command::new("true")).run(folder.path(), Duration::ZERO);
        assert_eq!(row.outcome, Outcome::Failed);
    }
}
