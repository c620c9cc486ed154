//! Runs each `show.sh` in `shared/data/faults`: inputs that once caused a wrong result, a hang or a
//! misleading message, each with a valid control input.

use std::path::Path;
use std::process::Command;

use rayon::prelude::*;

use crate::common::GPUS;
use crate::support::{data_dir, need, skipped};

/// The last line printed by a script, if the script reproduces its fault.
fn fault(case: &Path) -> Option<String> {
    let name = case.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut script = Command::new("bash");
    script.arg(case.join("show.sh")).env(GPUS, "");
    let output = script.env("ONEGRAPH", env!("CARGO_BIN_EXE_onegraph-under-test")).output();
    let output = output.expect("bash starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    let line = format!("{name}: {}", printed.trim().lines().last().unwrap_or_default());
    match output.status.code() {
        Some(0) => None,
        // The script prints the requirement that is missing, such as a server program.
        Some(2) => {
            skipped(&line);
            None
        }
        _ => Some(line),
    }
}

/// Runs two scripts at a time, since each uses one thread.
fn faults(wanted: impl Fn(&str) -> bool) -> Option<Vec<String>> {
    let folder = need(data_dir().join("faults"))?;
    let entries =
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
    let cases = entries.map(|entry| entry.path()).filter(|path| path.join("show.sh").exists());
    let name = |path: &Path| path.file_name().is_some_and(|name| wanted(&name.to_string_lossy()));
    let cases: Vec<_> = cases.filter(|path| name(path)).collect();
    assert!(!cases.is_empty(), "no case is wanted");
    Some(cases.par_iter().filter_map(|case| fault(case)).collect())
}

fn is_of_server(name: &str) -> bool {
    name.contains("-serve-")
}

#[test]
fn commands_report_shared_fault_cases() {
    if let Some(faults) = faults(|name| !is_of_server(name)) {
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}

#[test]
fn server_reports_shared_fault_cases() {
    if let Some(faults) = faults(is_of_server) {
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}
