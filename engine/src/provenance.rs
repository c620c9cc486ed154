//! Where a result comes from: commit, command, time.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::runtime::Machine;

/// The commit that was built: the one that the build was told by `ONEGRAPH_COMMIT`, else that of
/// the checkout that holds the program.
pub fn commit() -> Option<String> {
    let told = option_env!("ONEGRAPH_COMMIT").filter(|text| !text.is_empty());
    told.map(str::to_string).or_else(described)
}

fn described() -> Option<String> {
    let program = std::env::current_exe().ok()?;
    let mut git = Command::new("git");
    git.arg("-C").arg(program.parent()?).args(["describe", "--always", "--dirty", "--tags"]);
    let output = git.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_string())
}

/// This process's command line, quoted where a shell needs it.
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

/// The time, with the offset of its zone.
pub fn now() -> String {
    jiff::Zoned::now().strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
}

/// Time of writing, commit, version and machine, for a report.
pub fn facts() -> Value {
    let machine = Machine::here();
    json!({
        "written": now(),
        "commit": commit().unwrap_or("unknown".into()),
        "version": env!("CARGO_PKG_VERSION"),
        "cpu": machine.cpu,
        "threads": machine.threads,
        "memory_bytes": machine.memory.map(|(total, _)| total),
    })
}
