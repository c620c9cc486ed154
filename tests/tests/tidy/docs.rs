//! The documents are true: paths and tests that they name exist.

use std::collections::BTreeSet;

use super::files::File;

const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// Paths in backticks, from a room on, that no file or folder of the checkout has.
pub(crate) fn path_faults(documents: &[File], files: &[File]) -> Vec<String> {
    let rooms: BTreeSet<&str> =
        files.iter().filter_map(|f| f.path.split_once('/')).map(|(room, _)| room).collect();
    let exists = |path: &str| {
        let folder = format!("{}/", path.trim_end_matches('/'));
        files.iter().any(|file| file.path == path || file.path.starts_with(&folder))
    };
    let mut faults = Vec::new();
    for document in documents.iter().filter(|file| file.path.ends_with(".md")) {
        for (i, line) in document.text.lines().enumerate() {
            for quoted in backticked(line) {
                let is_path = quoted.split_once('/').is_some_and(|(room, _)| rooms.contains(room));
                // Patterns and command lines are no paths.
                if is_path && !quoted.contains([' ', '<', '*', '{', '=']) && !exists(quoted) {
                    let (path, line) = (&document.path, i + 1);
                    faults.push(format!(
                        "{path}:{line}: names `{quoted}`, which does not exist; correct the path"
                    ));
                }
            }
        }
    }
    faults
}

/// Invariants of ARCHITECTURE.md that name no test, or one that does not exist.
pub(crate) fn invariant_faults(files: &[File]) -> Vec<String> {
    let tests: BTreeSet<&str> = files
        .iter()
        .filter(|file| file.path.ends_with(".rs"))
        .flat_map(|file| test_names(&file.text))
        .collect();
    let text = text_of(files, ARCHITECTURE);
    let mut faults = Vec::new();
    let mut invariants = 0;
    for paragraph in text.split("\n\n").filter(|p| p.contains("**Invariant:**")) {
        invariants += 1;
        let statement = paragraph.lines().next().unwrap_or("");
        let named = paragraph.rsplit_once("Test: ").map_or("", |(_, names)| names);
        let named = backticked(named);
        if named.is_empty() {
            faults.push(format!(
                "{ARCHITECTURE}: no test holds \"{statement}\"; end it with: Test: `its_name`."
            ));
        }
        for name in named.into_iter().filter(|name| !tests.contains(name)) {
            faults.push(format!(
                "{ARCHITECTURE}: there is no test `{name}` to hold \"{statement}\"; write it, or \
                 name the one that does"
            ));
        }
    }
    if invariants == 0 {
        faults.push(format!("{ARCHITECTURE}: states no **Invariant:**; state what must hold"));
    }
    faults
}

/// Rows of ARCHITECTURE.md's table of rooms that differ from `rooms`.
pub(crate) fn table_faults(files: &[File], rooms: &[(&str, &[&str])]) -> Vec<String> {
    let text = text_of(files, ARCHITECTURE);
    let mut faults = Vec::new();
    for (room, allowed) in rooms {
        let row = text.lines().find(|line| line.starts_with(&format!("| `{room}` |")));
        let last_cell = row.and_then(|row| row.trim_end_matches(['|', ' ']).rsplit('|').next());
        let stated: Option<BTreeSet<&str>> =
            last_cell.map(|cell| backticked(cell).into_iter().collect());
        if stated != Some(allowed.iter().copied().collect()) {
            let allowed: Vec<String> = allowed.iter().map(|a| format!("`{a}`")).collect();
            let allowed = if allowed.is_empty() { "nothing".into() } else { allowed.join(", ") };
            faults.push(format!(
                "{ARCHITECTURE}: the row of `{room}` must end with what it may import: {allowed}"
            ));
        }
    }
    faults
}

fn text_of<'a>(files: &'a [File], path: &str) -> &'a str {
    files.iter().find(|file| file.path == path).map_or("", |file| &file.text)
}

fn backticked(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Names of functions below `#[test]`.
fn test_names(source: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut is_test = false;
    for line in source.lines().map(str::trim) {
        if line == "#[test]" {
            is_test = true;
        } else if let Some(rest) = line.strip_prefix("fn ").filter(|_| is_test) {
            names.extend(rest.split('(').next());
            is_test = false;
        }
    }
    names
}
