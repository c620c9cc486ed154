//! Words that files must not hold: the vocabulary of detection in `graph`, limits under other names
//! than the rest, openings of sentences that lack a subject, and paths of one machine.

use super::files::File;
use super::rust::code_only;

/// Parts of names that only detection has.
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
/// How the constants for limits must not begin, and how instead.
const LIMITS: [(&str, &str); 2] = [("MOST_", "MAX_"), ("LEAST_", "MIN_")];
/// Words that open a sentence without its subject; a capital shows that they open one.
const OPENINGS: [&str; 6] = ["Of", "Those", "That", "What", "Who", "Whether"];
/// Folders in which people and their tools keep checkouts, without the slashes around them: written
/// out they would be a fault of this file.
const FOLDERS: [&str; 6] = ["home", "root", "Users", "work", "workspace", "mnt"];

/// Words of detection in the files of `graph`.
pub(crate) fn graph_faults(file: &File) -> Vec<String> {
    let lines = file.text.lines().map(str::to_lowercase).enumerate();
    let found = lines.filter_map(|(i, line)| {
        Some((i + 1, DETECTION.iter().find(|word| line.contains(**word))?))
    });
    let fault =
        |(line, word)| format!("{}:{line}: says `{word}`, but graph knows no detection", file.path);
    if file.path.starts_with("graph/") { found.map(fault).collect() } else { vec![] }
}

/// Constants that begin with another word for the largest or smallest than all others.
pub(crate) fn limit_faults(file: &File) -> Vec<String> {
    let code = code_only(&file.text);
    let mut faults = Vec::new();
    for name in code.split(|c: char| !c.is_alphanumeric() && c != '_') {
        let better = LIMITS.iter().find(|(start, _)| name.starts_with(start));
        faults.extend(
            better.map(|(_, better)| format!("{}: `{name}`; begin it with `{better}`", file.path)),
        );
    }
    faults
}

/// Sentences of comments and documents that begin with one of [`OPENINGS`]. Headings, names in
/// backticks and fenced blocks are no sentences.
pub(crate) fn opening_faults(file: &File) -> Vec<String> {
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
        let mut words = text.split('`').step_by(2).flat_map(|part| part.split_whitespace());
        let opens =
            |word: &str| OPENINGS.contains(&word.trim_matches(|c: char| !c.is_alphanumeric()));
        if let Some(word) = words.find(|word| opens(word)) {
            faults.push(format!(
                "{}:{}: a sentence begins with `{word}`; begin it with its subject",
                file.path,
                i + 1
            ));
        }
    }
    faults
}

/// Lines that hold an absolute path into a folder of one machine, which means nothing on another.
pub(crate) fn machine_faults(file: &File) -> Vec<String> {
    let holds = |line: &str, folder: &str| {
        line.match_indices(&format!("/{folder}/")).any(|(at, _)| {
            !line[..at].ends_with(|c: char| c.is_alphanumeric() || "_-.~/>})]*".contains(c))
        })
    };
    let fault = |(i, line): (usize, &str)| {
        let found = FOLDERS.iter().find(|folder| holds(line, folder))?;
        Some(format!("{}:{}: holds a path of one machine (/{found}/..)", file.path, i + 1))
    };
    file.text.lines().enumerate().filter_map(fault).collect()
}
