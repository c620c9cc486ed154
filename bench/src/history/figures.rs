//! GPU figures in documents must match the history: a line with GPU figures ends in a comment that
//! lists their sources, `<!-- figures: COMMIT/FILE: NAME, ..; .. -->`; `COMMIT/FILE/NAME over
//! COMMIT/FILE/NAME` is the ratio of two figures.

use std::collections::BTreeMap;
use std::path::Path;

use super::{figures, read_all};

/// The pages that may contain GPU measurements.
const PAGES: [&str; 3] = ["README.md", "docs/measurements-gpu.md", "docs/decisions/packages.md"];
const COMMENT: &str = "<!-- figures: ";

/// Each figure of the history by `COMMIT/FILE/NAME`.
fn history() -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("history");
    for session in read_all(&folder).expect("a history") {
        for (file, value) in &session.files {
            figures(value, &format!("{}/{file}", session.commit), &mut found);
        }
    }
    found
}

/// The numbers in a line, as text; numbers in code, in links and in words such as H100 or 800x1344
/// do not count.
fn numbers(line: &str) -> Vec<String> {
    let code = line.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    let parts = code.split(['(', ')']).filter(|part| !part.contains(".md"));
    let links = parts.collect::<Vec<_>>().join(" ");
    let is_edge = |c: char| c.is_whitespace() || "|/[]();:%*".contains(c);
    let words = links.split(is_edge).map(|word| word.trim_matches([',', '.']));
    let is_number = |word: &&str| word.parse::<f64>().is_ok() && word.starts_with(char::is_numeric);
    words.map(|word| word.replace(',', "")).filter(|word| is_number(&word.as_str())).collect()
}

/// The figures listed in a comment.
fn names(comment: &str) -> Vec<String> {
    let groups = comment.trim_end_matches(" -->").split("; ");
    let of_group = |group: &str| match group.split_once(": ") {
        Some((file, names)) => names.split(", ").map(|name| format!("{file}/{name}")).collect(),
        None => vec![group.to_string()],
    };
    groups.flat_map(of_group).collect()
}

/// The error in a line of a page, if any; on `strict` pages every line with a number needs sources.
fn fault(line: &str, strict: bool, known: &BTreeMap<String, f64>) -> Option<String> {
    let Some((text, comment)) = line.split_once(COMMENT) else {
        let about_gpus = ["H100", "H200", "A100"].iter().any(|gpu| line.contains(gpu));
        let states = (strict || about_gpus && line.contains("images/s"))
            .then(|| numbers(line))
            .filter(|found| !found.is_empty());
        return states.map(|found| format!("states {found:?} without its source"));
    };
    let mut unused = vec![];
    for name in names(comment) {
        let value = |name: &str| known.get(name).copied().ok_or(format!("no figure {name}"));
        let value = match name.split_once(" over ") {
            Some((a, b)) => value(a).and_then(|a| Ok(a / value(b)?)),
            None => value(&name),
        };
        match value {
            Ok(value) => unused.push((name, value)),
            Err(fault) => return Some(fault),
        }
    }
    let sources = unused.clone();
    for number in numbers(text) {
        let decimals = number.split_once('.').map_or(0, |(_, digits)| digits.len());
        let is = |value: f64| format!("{value:.decimals$}") == number;
        if !sources.iter().any(|(_, value)| is(*value)) {
            return Some(format!("{number} is none of {sources:?}"));
        }
        unused.retain(|(_, value)| !is(*value));
    }
    (!unused.is_empty()).then(|| format!("does not state {unused:?}"))
}

#[test]
fn document_figures_match_history() {
    let known = history();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut faults = vec![];
    for page in PAGES {
        let text = std::fs::read_to_string(root.join(page)).expect(page);
        let strict = page.ends_with("measurements-gpu.md");
        for (idx, line) in text.lines().enumerate() {
            let found = fault(line, strict, &known);
            faults.extend(found.map(|fault| format!("{page}:{}: {fault}", idx + 1)));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
