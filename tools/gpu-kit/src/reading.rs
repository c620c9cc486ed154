//! How the end of a stage's process is interpreted: passed, failed or skipped, and the sentence of
//! its row.

use std::path::Path;

use serde_json::Value;

use super::child::Ended;
use super::report::Outcome;

/// How a stage's output is interpreted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// Its line `figure: `, else its last line.
    Said,
    /// The whole output belongs in the report.
    Words,
    /// The JSON of a bench of the step.
    Bench,
    /// The same with sums over ranks; skipped without NCCL.
    AllReduce,
    /// The JSON of `bench ops`.
    Ops,
    /// The JSON of `bench nodes`.
    Nodes,
    /// The list of shapes of `bench nodes`.
    Shapes,
    /// The JSON of `bench infer`.
    Infer,
    /// The summary of compute-sanitizer.
    Sanitizer,
    /// The table that ncu wrote into the first product.
    Ncu,
}

impl Reading {
    /// Result and sentence of a finished process, with its JSON and its table.
    pub(super) fn of(
        self,
        ended: &Ended,
        details: &Value,
        table: Option<&Path>,
    ) -> (Outcome, String) {
        let found = match self {
            Reading::Sanitizer => sanitizer(ended),
            Reading::AllReduce => {
                let why = ended.line("error: NCCL, which several GPUs need, ");
                why.map(|why| (Outcome::Skipped, format!("SKIPPED: NCCL {why}")))
            }
            Reading::Ncu => {
                let text = table.and_then(|file| std::fs::read_to_string(file).ok());
                ncu(ended, &text.unwrap_or_default())
            }
            _ => None,
        };
        if let Some(found) = found {
            return found;
        }
        let (outcome, figure) = plain(ended);
        let counted = match self {
            Reading::Bench => bench_figure(details),
            Reading::AllReduce => all_reduce_figure(details),
            Reading::Ops => ops_figure(details),
            Reading::Nodes => nodes_figure(details),
            Reading::Shapes => {
                details["shapes"].as_array().map(|all| format!("{} shapes", all.len()))
            }
            Reading::Infer => infer_figure(details),
            _ => None,
        };
        let figure = match (outcome, counted) {
            (Outcome::Passed, Some(counted)) => counted,
            (Outcome::Failed, Some(counted)) => format!("{figure}; by then {counted}"),
            _ => figure,
        };
        (outcome, figure)
    }
}

/// How any process ends.
fn plain(ended: &Ended) -> (Outcome, String) {
    let Some(status) = ended.status else {
        let why = ended.stopped.as_deref().unwrap_or("stopped");
        return (Outcome::Failed, format!("{why}; last said: {}", ended.last_line()));
    };
    if !status.success() {
        let said = ended.line("error: ").or(ended.line("FAILED ")).unwrap_or(ended.last_line());
        let why = match status.code() {
            Some(1) => said.to_string(),
            _ => format!("{said} ({status})"),
        };
        return (Outcome::Failed, why);
    }
    if let Some(why) = ended.line("SKIPPED: ") {
        return (Outcome::Skipped, format!("SKIPPED: {why}"));
    }
    let said = ended.line("figure: ").or(ended.line("auto ")).unwrap_or(ended.last_line());
    (Outcome::Passed, said.to_string())
}

/// The findings of compute-sanitizer; `None` without a summary.
fn sanitizer(ended: &Ended) -> Option<(Outcome, String)> {
    if let Some(line) = ended.line_with("Device not supported") {
        return Some((Outcome::Skipped, format!("SKIPPED: {line}")));
    }
    let summary = ended.line("========= ERROR SUMMARY: ");
    let summary = ended.line("========= RACECHECK SUMMARY: ").or(summary)?;
    let cases = ended.line("figure: ").map_or(String::new(), |cases| format!("; {cases}"));
    let outcome = match ended.status {
        Some(status) if status.success() => Outcome::Passed,
        _ => Outcome::Failed,
    };
    let fault = ended.line("error: ").filter(|_| outcome == Outcome::Failed);
    let fault = fault.map_or(String::new(), |fault| format!("; {fault}"));
    Some((outcome, format!("{summary}{cases}{fault}")))
}

/// How many kernels ncu recorded, or why none.
fn ncu(ended: &Ended, text: &str) -> Option<(Outcome, String)> {
    let error = text
        .lines()
        .chain(ended.line_with("==ERROR=="))
        .find_map(|line| line.trim().strip_prefix("==ERROR== ").map(str::to_string));
    // Rows of a table are `"0","1234",..`; each kernel of the page of details has a line that holds
    // its context.
    let row = |line: &&str| {
        let number = line.strip_prefix('"').and_then(|rest| rest.chars().next());
        number.is_some_and(|c| c.is_ascii_digit()) || line.contains(", Context ")
    };
    let kernels = text.lines().filter(row).count();
    let cut = match ended.status {
        Some(status) if status.success() => String::new(),
        _ => format!("; ended early: {}", ended.stopped.as_deref().unwrap_or("see the log")),
    };
    match (kernels, error) {
        (0, Some(why)) => Some((Outcome::Skipped, format!("SKIPPED: ncu refuses: {why}"))),
        (0, None) => None,
        (_, why) => {
            let why = why.map_or(String::new(), |why| format!("; {why}"));
            Some((Outcome::Passed, format!("{kernels} kernels{cut}{why}")))
        }
    }
}

/// The figures of a bench in one line.
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
        text += &format!(", {lost} with non-finite losses");
    }
    Some(text)
}

/// The figures of a bench, and its step time over that without sums.
fn all_reduce_figure(value: &Value) -> Option<String> {
    let mut text = bench_figure(value)?;
    let number = |pointer: &str| value.pointer(pointer).and_then(Value::as_f64);
    let (buckets, mib) = (number("/reduced/buckets")?, number("/reduced/bytes")? / 1048576.0);
    text += &format!(", {mib:.1} MiB summed in {buckets} buckets");
    let ratio = number("/against/ratio").zip(number("/against/p50_ms"));
    text += &ratio.map_or(", nothing to compare with".into(), |(ratio, ms)| {
        format!(", without {ms:.1} ms: ratio {ratio:.4}")
    });
    Some(text)
}

/// How many cases were timed, and which takes longest.
fn ops_figure(value: &Value) -> Option<String> {
    let cases = value["cases"].as_array()?;
    let ms = |case: &Value| case["ms"].as_f64().unwrap_or(0.0);
    let longest = cases.iter().max_by(|a, b| ms(a).total_cmp(&ms(b)))?;
    let name = longest["case"].as_str()?;
    Some(format!("{} cases timed, the longest {:.3} ms: {name}", cases.len(), ms(longest)))
}

/// The whole step compared with the sum of its launches.
fn nodes_figure(value: &Value) -> Option<String> {
    let ms = |pointer: &str| value.pointer(pointer).and_then(Value::as_f64);
    let mut text = format!(
        "{} launches of {:.2} ms in all",
        value.pointer("/launches/kernels")?.as_u64()?,
        ms("/launches/sum_ms")?
    );
    for (pointer, name) in
        [("/graph/ms", "graph"), ("/gap_ms", "gap"), ("/graph_on_one_stream/ms", "on one stream")]
    {
        text += &ms(pointer).map_or(String::new(), |ms| format!(", {name} {ms:.2} ms"));
    }
    Some(text)
}

/// Images per second of the detection program at each size.
fn infer_figure(value: &Value) -> Option<String> {
    let cases = value["cases"].as_array()?.iter();
    let case = |case: &Value| {
        let number = |pointer: &str| case.pointer(pointer).and_then(Value::as_f64);
        Some(format!(
            "batch {}: {:.1} images/s, p50 {:.1} ms, with masks {:.1} images/s",
            case["batch_size"],
            number("/program/images_per_second")?,
            number("/program/p50_ms")?,
            number("/masks/images_per_second")?,
        ))
    };
    let texts: Vec<String> = cases.filter_map(case).collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::process::Command;
    use std::time::Duration;

    use super::super::child::{self, Event, Limit};
    use super::*;

    fn said_as(reading: Reading, script: &str) -> (Outcome, String) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(folder.path());
        let limit = Limit { all: Duration::from_secs(1), notice: None };
        let watch = |_: Event<'_>| ControlFlow::Continue(());
        let ended = child::run(&mut command, limit, watch).expect("sh starts");
        reading.of(&ended, &Value::Null, Some(&folder.path().join("ncu.csv")))
    }

    #[test]
    fn the_end_of_a_stage_is_its_result() {
        let said = |script| said_as(Reading::Said, script);
        assert_eq!(said("echo figure: 7 ms; echo more"), (Outcome::Passed, "7 ms".into()));
        assert_eq!(
            said("echo x; echo error: no GPU >&2; exit 1"),
            (Outcome::Failed, "no GPU".into())
        );
        assert_eq!(said("echo SKIPPED: no data"), (Outcome::Skipped, "SKIPPED: no data".into()));
        let (outcome, why) = said("echo begun; kill -SEGV $$");
        assert!(outcome == Outcome::Failed && why.starts_with("begun (signal"), "{why}");
        let (outcome, why) = said("echo begun; exec sleep 60");
        assert!(outcome == Outcome::Failed && why == "no end after 1 s; last said: begun", "{why}");
    }

    #[test]
    fn both_summaries_of_the_sanitizer_are_read() {
        let said = |script| said_as(Reading::Sanitizer, script);
        let found = "echo figure: 9 cases; echo ========= ERROR SUMMARY: 2 errors; exit 9";
        assert_eq!(said(found), (Outcome::Failed, "2 errors; 9 cases".into()));
        let race = "echo '========= RACECHECK SUMMARY: 0 hazards displayed (0 errors)'";
        assert_eq!(said(race), (Outcome::Passed, "0 hazards displayed (0 errors)".into()));
        let (outcome, why) = said("echo '========= Error: Device not supported'; exit 1");
        assert_eq!(outcome, Outcome::Skipped);
        assert!(why.starts_with("SKIPPED: ") && why.ends_with("Device not supported"), "{why}");
        let none = said("echo error: no GPU; exit 1");
        assert_eq!(none, (Outcome::Failed, "no GPU".into()));
    }

    #[test]
    fn a_bench_without_nccl_is_skipped() {
        let said = |script| said_as(Reading::AllReduce, script);
        let (outcome, why) =
            said("echo error: NCCL, which several GPUs need, is not found >&2; exit 1");
        assert_eq!((outcome, why.as_str()), (Outcome::Skipped, "SKIPPED: NCCL is not found"));
        assert_eq!(said("echo error: no GPU >&2; exit 1"), (Outcome::Failed, "no GPU".into()));
    }

    #[test]
    fn ncu_counts_or_says_why_not() {
        let said = |script| said_as(Reading::Ncu, script);
        let refuses = "echo '==ERROR== ERR_NVGPUCTRPERM - no permission' > ncu.csv; exit 1";
        let (outcome, why) = said(refuses);
        assert_eq!(outcome, Outcome::Skipped);
        assert_eq!(why, "SKIPPED: ncu refuses: ERR_NVGPUCTRPERM - no permission");
        let table = "printf '\"ID\",\"Name\"\\n\"\",\"\"\\n\"0\",\"a\"\\n\"1\",\"b\"\\n' > ncu.csv";
        assert_eq!(said(table), (Outcome::Passed, "2 kernels".into()));
        assert_eq!(said("echo error: no GPU; exit 1"), (Outcome::Failed, "no GPU".into()));
    }
}
