//! Checks that paths, links and tests that the documents mention exist.

use std::collections::BTreeSet;
use std::path::Path;

use super::files::{File, root};

/// Paths in backticks, starting at a crate, and link targets that do not exist in the checkout.
pub(crate) fn path_faults(files: &[File]) -> Vec<String> {
    let rooms: BTreeSet<&str> =
        files.iter().filter_map(|f| f.path.split_once('/')).map(|(room, _)| room).collect();
    let mut faults = Vec::new();
    for document in files.iter().filter(|file| file.path.ends_with(".md")) {
        let folder = root().join(Path::new(&document.path).parent().unwrap_or(Path::new("")));
        for (i, line) in document.text.lines().enumerate() {
            let paths = backticked(line).filter(|quoted| {
                let is_path = quoted.split_once('/').is_some_and(|(room, _)| rooms.contains(room));
                // Patterns and command lines are not paths.
                is_path
                    && !quoted.contains([' ', '<', '*', '{', '='])
                    && !root().join(quoted).exists()
            });
            let links = line.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
            let links = links.filter(|to| !to.contains("://") && !folder.join(to).exists());
            let fault = |path| format!("{}:{}: there is no `{path}`", document.path, i + 1);
            faults.extend(paths.chain(links).map(fault));
        }
    }
    faults
}

/// Invariants of ARCHITECTURE.md without a test, or with one that does not exist.
pub(crate) fn invariant_faults(files: &[File]) -> Vec<String> {
    let sources = files.iter().filter(|file| file.path.ends_with(".rs"));
    let is_test =
        |name: &str| sources.clone().any(|file| file.text.contains(&format!("fn {name}(")));
    let architecture = files.iter().find(|file| file.path == "ARCHITECTURE.md");
    let text = architecture.map_or("", |file| &file.text);
    let mut faults = Vec::new();
    for paragraph in text.split("\n\n").filter(|p| p.contains("**Invariant:**")) {
        let statement = paragraph.lines().next().unwrap_or("");
        let names = paragraph.rsplit_once("Test: ").map_or("", |(_, names)| names);
        let names: Vec<&str> = backticked(names).collect();
        if names.is_empty() || !names.iter().all(|name| is_test(name)) {
            faults.push(format!("ARCHITECTURE.md: a test is missing in {names:?}: {statement}"));
        }
    }
    faults
}

fn backticked(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}
