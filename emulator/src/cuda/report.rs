//! Findings, and the trace of calls.

use std::env;
use std::fs::OpenOptions;
use std::io::Write;

use super::errors::{Failure, texts};

/// The file that gets a line for each finding.
const REPORT: &str = "DRIVER_REPORT";
/// The file that gets a line for each call.
const TRACE: &str = "DRIVER_TRACE";

/// Appends a finding to the report file.
pub(super) fn finding(line: &str) {
    append(REPORT, line);
}

/// Adds a device failure to the report, and prints it.
pub(super) fn fault(code: i32, sentence: &str) {
    let line = format!("fault: {sentence} ({})", name(code));
    finding(&line);
    eprintln!("{line}");
}

/// Adds a failure to the report if it is a misuse.
pub(super) fn misuse_in(function: &str, failure: &Failure) {
    if let Some(sentence) = &failure.misuse {
        finding(&format!("misuse: {function}: {sentence} ({})", name(failure.code)));
    }
}

/// Adds a call to the trace.
pub(super) fn trace(function: &str, code: i32) {
    append(TRACE, &format!("{function} {code}"));
}

/// Adds a launch to the trace, as a line before the line of its `cuLaunchKernel` call.
pub(super) fn launched(kernel: &str) {
    append(TRACE, &format!("launch {kernel}"));
}

/// The code of an error, and its name.
fn name(code: i32) -> String {
    let name = texts(code).map_or("unknown".into(), |(name, _)| name.to_string_lossy());
    format!("{code} {name}")
}

fn append(variable: &str, line: &str) {
    let Some(path) = env::var_os(variable).filter(|path| !path.is_empty()) else { return };
    let line = format!("{}\n", line.replace('\n', " "));
    // Several processes may append to the file: each line is one write.
    let added = OpenOptions::new().create(true).append(true).open(&path);
    if let Err(e) = added.and_then(|mut file| file.write_all(line.as_bytes())) {
        eprintln!("{variable}: {}: {e}", path.display());
    }
}
