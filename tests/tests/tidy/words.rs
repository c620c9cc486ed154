//! Words that files must not hold: the vocabulary of detection in `graph`, limits under other names
//! than the rest, and openings of sentences that lack a subject.

use super::files::File;
use super::rust::{code_only, line_comments, lines_with_word};

/// The vocabulary of detection, singular and plural, as parts of names. `box` and `mask` alone are
/// no sign of it: Rust has boxes and any program has bit masks.
const DETECTION: &[&str] = &[
    "anchor",
    "anchors",
    "backbone",
    "bbox",
    "bboxes",
    "boxes",
    "coco",
    "detector",
    "detectors",
    "fpn",
    "gt",
    "iou",
    "nms",
    "objectness",
    "proposal",
    "proposals",
    "rcnn",
    "roi",
    "rois",
    "rpn",
];

/// Words of detection in the files of `graph`.
pub(crate) fn graph_faults(files: &[File]) -> Vec<String> {
    let graph = files.iter().filter(|file| file.path.starts_with("graph/"));
    let mut faults = Vec::new();
    let mut sources = 0;
    for file in graph {
        sources += usize::from(file.path.starts_with("graph/src/"));
        for (i, line) in file.text.lines().enumerate() {
            let spoken = parts(line).into_iter().find(|part| DETECTION.contains(&part.as_str()));
            let spoken = spoken.or_else(|| {
                line.to_lowercase().contains("mask r-cnn").then(|| "mask r-cnn".to_string())
            });
            if let Some(word) = spoken {
                let (path, line) = (&file.path, i + 1);
                faults.push(format!(
                    "{path}:{line}: says `{word}`, but graph knows no detection; say it in the \
                     graph's own words, or move it to engine"
                ));
            }
        }
    }
    if sources == 0 {
        faults.push("graph/src: holds no file; this check proves nothing".into());
    }
    faults
}

/// How the constants for limits must not begin, and how instead.
const LIMITS: [(&str, &str); 2] = [("MOST_", "MAX_"), ("LEAST_", "MIN_")];
/// Constants that keep such a name, each with the reason.
pub(crate) const LEFT: &[(&str, &str)] = &[];

/// Constants that begin with another word for the largest or smallest than all others, and names of
/// `left` that no file holds.
pub(crate) fn limit_faults(files: &[File], left: &[(&str, &str)]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut held = Vec::new();
    for file in files {
        let code = code_only(&file.text);
        for (start, better) in LIMITS {
            let words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
            let mut names: Vec<&str> = words.filter(|word| word.starts_with(start)).collect();
            names.sort_unstable();
            names.dedup();
            for name in names {
                held.push(name.to_owned());
                if !left.iter().any(|(word, _)| *word == name) {
                    let (path, line) = (&file.path, lines_with_word(&code, name)[0]);
                    let rest = name.trim_start_matches(start);
                    faults.push(format!("{path}:{line}: `{name}`; call it `{better}{rest}`"));
                }
            }
        }
    }
    let gone = left.iter().filter(|(word, _)| !held.iter().any(|name| name == word));
    faults.extend(gone.map(|(word, _)| {
        format!("`{word}` is gone; take it off LEFT in tests/tests/tidy/words.rs")
    }));
    faults
}

/// Words that open a sentence without its subject; a capital shows that they open one.
const OPENINGS: [&str; 6] = ["Of", "Those", "That", "What", "Who", "Whether"];
/// Sentences of comments and documents that begin with one of [`OPENINGS`]. Headings, names in
/// backticks and fenced blocks are no sentences.
pub(crate) fn opening_faults(files: &[File]) -> Vec<String> {
    let mut faults = Vec::new();
    for file in files {
        let mut is_fenced = false;
        for (line, text) in prose(file) {
            is_fenced ^= text.starts_with("```");
            if is_fenced || text.starts_with('#') {
                continue;
            }
            let mut words = text.split('`').step_by(2).flat_map(|part| part.split_whitespace());
            let opening = words.find_map(|word| {
                let word = word.trim_matches(|c: char| !c.is_alphanumeric());
                OPENINGS.iter().find(|opening| **opening == word)
            });
            if let Some(word) = opening {
                let path = &file.path;
                faults.push(format!(
                    "{path}:{line}: a sentence begins with `{word}`; begin it with its subject"
                ));
            }
        }
    }
    faults
}

/// The lines of a document, or of a source's comments, with their numbers.
fn prose(file: &File) -> Vec<(usize, String)> {
    if file.path.ends_with(".md") {
        return (1..).zip(file.text.lines().map(|line| line.trim().to_owned())).collect();
    }
    let text = |comment: &str| comment.trim_start_matches(['/', '!']).trim().to_owned();
    line_comments(&file.text).iter().map(|(line, comment)| (*line, text(comment))).collect()
}

/// The words of a line, in lower case: names are split at `_` and where a capital begins.
fn parts(line: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut after_small = false;
    for c in line.chars() {
        if !c.is_ascii_alphabetic() || (c.is_ascii_uppercase() && after_small) {
            parts.push(String::new());
        }
        if c.is_ascii_alphabetic()
            && let Some(part) = parts.last_mut()
        {
            part.push(c.to_ascii_lowercase());
        }
        after_small = c.is_ascii_lowercase();
    }
    parts.retain(|part| !part.is_empty());
    parts
}
