//! Allowed imports between crates: the table in ARCHITECTURE.md compared with the manifests.

use std::collections::BTreeMap;

use super::files::{File, packages};

const ARCHITECTURE: &str = "ARCHITECTURE.md";
/// Crates that only tests may import, and developer tools; user programs must not contain them.
const FOR_TESTS: [&str; 4] = ["compile", "emulator", "emulator_nccl", "test_gpu"];
/// Crates that are not user programs, which may import those of [`FOR_TESTS`] in any dependency
/// table.
const FOR_DEVELOPERS: [&str; 2] = ["tests", "test_gpu"];

/// Table rows without a package, packages without a row, imports that the table does not allow, and
/// packages without the workspace lints.
pub(crate) fn faults(files: &[File]) -> Vec<String> {
    let architecture = files.iter().find(|file| file.path == ARCHITECTURE);
    let mut rows = rows(architecture.map_or("", |file| &file.text));
    let mut faults = Vec::new();
    for package in packages() {
        let text_of = |key: &str| package[key].as_str().expect("a text");
        let (room, manifest) = (text_of("name"), text_of("manifest_path"));
        let Some(allowed) = rows.remove(room) else {
            faults.push(format!(
                "{manifest}: `{room}` has no row in {ARCHITECTURE}; add a row, or move its code \
                 into a listed crate"
            ));
            continue;
        };
        let text = std::fs::read_to_string(manifest).expect("a manifest");
        if !text.contains("\n[lints]\nworkspace = true\n") {
            faults.push(format!("{manifest}: add [lints] with `workspace = true`"));
        }
        let imports = package["dependencies"].as_array().expect("an array");
        for import in imports.iter().filter(|import| import["path"].is_string()) {
            let name = import["name"].as_str().expect("a text");
            let is_for_tests = import["kind"] == "dev";
            if !allowed.contains(&name) {
                faults.push(format!(
                    "{manifest}: `{room}` may not import `{name}`; move the code that needs both \
                     to a crate that may ({ARCHITECTURE})"
                ));
            } else if FOR_TESTS.contains(&name) && !is_for_tests && !FOR_DEVELOPERS.contains(&room)
            {
                faults.push(format!("{manifest}: `{name}` must be a dev-dependency"));
            }
        }
    }
    faults.extend(rows.keys().map(|room| format!("{ARCHITECTURE}: there is no package `{room}`")));
    faults
}

/// The crates of the table, each with the crates that it may import.
fn rows(text: &str) -> BTreeMap<&str, Vec<&str>> {
    let table = text.split("| crate | what it is | may import |\n").nth(1).unwrap_or("");
    let rows = table.lines().skip(1).take_while(|line| line.starts_with("| `"));
    rows.filter_map(|line| {
        let last = line.trim_end_matches([' ', '|']).rsplit('|').next()?;
        Some((line.split('`').nth(1)?, last.split('`').skip(1).step_by(2).collect()))
    })
    .collect()
}
