//! Origin of a result: commit, command, time.

use std::path::Path;

use serde_json::{Value, json};

use crate::runtime::Machine;

/// Git commit that the program was built from: that of the source checkout, or the value of
/// `ONEGRAPH_COMMIT` at build time. `None` if neither was available.
pub fn commit() -> Option<&'static str> {
    Some(env!("ONEGRAPH_COMMIT")).filter(|commit| *commit != "unknown")
}

/// This process's command line, quoted for a shell where necessary.
pub fn command() -> String {
    let mut words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let program = words.next().unwrap_or_default();
    let name = Path::new(&program).file_name().map(|name| name.to_string_lossy().into_owned());
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    let quoted = words.map(|word| match !word.is_empty() && word.chars().all(plain) {
        true => word,
        false => format!("'{}'", word.replace('\'', r"'\''")),
    });
    std::iter::once(name.unwrap_or_default()).chain(quoted).collect::<Vec<_>>().join(" ")
}

/// The current time, with the offset of the time zone.
pub fn now() -> String {
    jiff::Zoned::now().strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
}

/// Current time, commit, version and machine, for a report.
pub fn facts() -> Value {
    let machine = Machine::here();
    json!({
        "written": now(),
        "commit": commit().unwrap_or("unknown"),
        "version": env!("CARGO_PKG_VERSION"),
        "cpu": machine.cpu,
        "threads": machine.threads,
        "memory_bytes": machine.memory.map(|(total, _)| total),
    })
}
