//! Words that files must not contain: detection terms in `graph`, limits with unusual names,
//! sentence openings without a subject, words for which the field has a standard term, and
//! machine-specific paths.

use super::files::File;
use super::rust::code_only;

/// Parts of names that only occur in detection.
const DETECTION: [&str; 14] = [
    "anchor",
    "backbone",
    "bbox",
    "boxes",
    "coco",
    "detector",
    "fpn",
    "mask r-cnn",
    "nms",
    "objectness",
    "proposal",
    "rcnn",
    "roi",
    "rpn",
];
/// Disallowed prefixes of constants for limits, and their replacements.
const LIMITS: [(&str, &str); 2] = [("MOST_", "MAX_"), ("LEAST_", "MIN_")];
/// Words that must not begin a sentence; a capital letter shows that they do.
const OPENINGS: [&str; 6] = ["Of", "Those", "That", "What", "Who", "Whether"];
/// Words that comments and documents do not use, and what to write.
const TERMS: [(&str, &str); 20] = [
    ("matrix product", "GEMM"),
    ("sums over ranks", "all-reduce"),
    ("whole number", "integer"),
    ("drawn data", "synthetic data"),
    ("the same bits", "bit-identical"),
    ("to the bit", "bit-identical"),
    ("signs of life", "heartbeats"),
    ("on its way", "in flight"),
    ("at hand", "available"),
    ("stand-in", "stub"),
    ("half-made", "partial"),
    ("anew", "again"),
    ("by heart", "memorizes"),
    ("goes on", "continues"),
    ("nobody", "no thread, no peer, unwritten"),
    ("somebody", "the user, a thread, a peer"),
    ("whatever", "for any, regardless of"),
    ("whoever", "a process that, a user who"),
    ("of its own", "its own, separate"),
    ("of their own", "their own, separate"),
];
/// Folders in which users and their tools keep checkouts; without slashes, since this check would
/// otherwise reject this file.
const FOLDERS: [&str; 6] = ["home", "root", "Users", "work", "workspace", "mnt"];

/// Detection terms in the files of `graph`.
pub(crate) fn graph_faults(file: &File) -> Vec<String> {
    let lines = file.text.lines().map(str::to_lowercase).enumerate();
    let found = lines.filter_map(|(i, line)| {
        Some((i + 1, DETECTION.iter().find(|word| line.contains(**word))?))
    });
    let fault = |(line, word)| format!("{}:{line}: contains `{word}`, a detection term", file.path);
    if file.path.starts_with("graph/") { found.map(fault).collect() } else { vec![] }
}

/// Constants for limits with a disallowed prefix.
pub(crate) fn limit_faults(file: &File) -> Vec<String> {
    let code = code_only(&file.text);
    let mut faults = Vec::new();
    for name in code.split(|c: char| !c.is_alphanumeric() && c != '_') {
        let better = LIMITS.iter().find(|(start, _)| name.starts_with(start));
        faults.extend(
            better.map(|(_, better)| format!("{}: `{name}`: begin it with `{better}`", file.path)),
        );
    }
    faults
}

/// Sentences of comments and documents that begin with one of [`OPENINGS`] or contain one of
/// [`TERMS`]. Headings, names in backticks and fenced blocks are not sentences.
pub(crate) fn prose_faults(file: &File) -> Vec<String> {
    let is_document = file.path.ends_with(".md");
    let mut faults = Vec::new();
    let mut is_fenced = false;
    for (i, line) in file.text.lines().enumerate() {
        let comment =
            line.split_once("//").map(|(_, comment)| comment.trim_start_matches(['/', '!']));
        let Some(text) = (if is_document { Some(line) } else { comment }) else {
            is_fenced = false;
            continue;
        };
        is_fenced ^= text.trim().starts_with("```");
        if is_fenced || text.trim().starts_with('#') {
            continue;
        }
        let prose: String = text.split('`').step_by(2).collect();
        let place = format!("{}:{}", file.path, i + 1);
        let lower = prose.to_lowercase();
        let is_used = |word: &str| {
            let is_letter = |c: char| c.is_alphabetic();
            lower.match_indices(word).any(|(start, _)| {
                let (before, after) = (&lower[..start], &lower[start + word.len()..]);
                !before.ends_with(is_letter) && !after.starts_with(is_letter)
            })
        };
        for (word, better) in TERMS.iter().filter(|(word, _)| is_used(word)) {
            faults.push(format!("{place}: `{word}`; write {better}"));
        }
        let opens =
            |word: &str| OPENINGS.contains(&word.trim_matches(|c: char| !c.is_alphanumeric()));
        if let Some(word) = prose.split_whitespace().find(|word| opens(word)) {
            faults.push(format!(
                "{place}: a sentence begins with `{word}`; begin it with its subject"
            ));
        }
    }
    faults
}

/// Lines with an absolute path into a machine-specific folder, which is meaningless on other
/// machines.
pub(crate) fn machine_faults(file: &File) -> Vec<String> {
    let holds = |line: &str, folder: &str| {
        line.match_indices(&format!("/{folder}/")).any(|(at, _)| {
            !line[..at].ends_with(|c: char| c.is_alphanumeric() || "_-.~/>})]*".contains(c))
        })
    };
    let fault = |(i, line): (usize, &str)| {
        let found = FOLDERS.iter().find(|folder| holds(line, folder))?;
        Some(format!("{}:{}: contains a machine-specific path (/{found}/..)", file.path, i + 1))
    };
    file.text.lines().enumerate().filter_map(fault).collect()
}
