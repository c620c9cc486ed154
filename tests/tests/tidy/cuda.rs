//! The format of CUDA and C++ sources: the header of a kernel file, and identifiers quoted in
//! comments.

use std::collections::BTreeSet;

use super::files::File;
use super::rust::code_only;

/// The folder with the training kernels, whose `.cu` files need the header shown in
/// CONTRIBUTING.md.
const KERNELS: &str = "kernels/src/";
const GLOSSARY: &str = "docs/glossary.md";
/// First cell of each heading row in the glossary's tables.
const HEADS: [&str; 2] = ["letter", "noun"];
/// Lines of a header, in this order.
const LINES: [&str; 4] = ["// Launch: ", "// Cost: ", "// Numerics: ", "// Edge cases: "];

/// True for CUDA and C++ sources and headers.
pub(crate) fn is_cuda(file: &File) -> bool {
    [".cu", ".cuh", ".cpp", ".h"].iter().any(|ending| file.path.ends_with(ending))
}

/// Kernel headers without their four lines.
pub(crate) fn header_faults(files: &[File]) -> Vec<String> {
    let sources = |file: &&File| file.path.starts_with(KERNELS) && file.path.ends_with(".cu");
    let lacks_lines = |file: &&File| {
        let line = |start: &&str| file.text.lines().position(|line| line.starts_with(*start));
        let found: Vec<usize> = LINES.iter().filter_map(line).collect();
        found.len() < LINES.len() || !found.is_sorted()
    };
    let faulty = files.iter().filter(sources).filter(lacks_lines);
    let wanted = LINES.map(|line| line.trim_start_matches("// ").trim()).join(" ");
    faulty.map(|file| format!("{}: its header lacks {wanted}", file.path)).collect()
}

/// Letters and nouns that the glossary explains twice.
pub(crate) fn glossary_faults(files: &[File]) -> Vec<String> {
    let Some(file) = files.iter().find(|file| file.path == GLOSSARY) else {
        return vec![format!("{GLOSSARY}: is missing; it must explain letters and nouns")];
    };
    let mut seen = BTreeSet::new();
    let rows = file.text.lines().filter_map(|line| line.strip_prefix("| "));
    let entries = rows.filter_map(|row| row.split_once(" |")).map(|(entry, _)| entry);
    let twice = entries.filter(|entry| !HEADS.contains(entry) && !seen.insert(*entry));
    twice.map(|entry| format!("{GLOSSARY}: explains {entry} twice; give it one meaning")).collect()
}

/// Names in backticks in comments of CUDA and C++ sources that do not exist in code: neither in the
/// file, nor in a file mentioned in the same comment.
pub(crate) fn comment_faults(files: &[File]) -> Vec<String> {
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| is_cuda(file)) {
        let own = words_of(&file.text);
        for (line, comment) in comments(&file.text) {
            let named = |other: &&File| {
                comment.split(|c: char| c.is_whitespace() || c == ',' || c == ':').any(|word| {
                    let word = word.trim_end_matches(['.', ')', '\'']);
                    other.path == word || other.path.ends_with(&format!("/{word}"))
                })
            };
            for quoted in comment.split('`').skip(1).step_by(2) {
                // Only text before `(` and `/` is a name: call arguments and quoted comments are
                // ignored.
                let name = quoted.split(['(', '/']).next().unwrap_or("");
                let missing = words(name).filter(|word| word.len() > 1 && !own.contains(*word));
                for word in missing {
                    let elsewhere = files.iter().filter(named);
                    if !elsewhere.into_iter().any(|other| words_of(&other.text).contains(word)) {
                        let path = &file.path;
                        faults.push(format!(
                            "{path}:{line}: mentions `{word}`, which its code lacks; correct \
                             the name, or mention the file that contains it"
                        ));
                    }
                }
            }
        }
    }
    faults
}

/// Blocks of comment lines, each with the number of its first line.
fn comments(text: &str) -> Vec<(usize, String)> {
    let mut runs: Vec<(usize, String)> = Vec::new();
    let mut last = 0;
    for (i, line) in text.lines().enumerate() {
        let Some((_, comment)) = line.split_once("//") else { continue };
        match runs.last_mut() {
            Some((_, run)) if last == i => *run = format!("{run} {}", comment.trim()),
            _ => runs.push((i + 1, comment.trim().to_owned())),
        }
        last = i + 1;
    }
    runs
}

fn words_of(source: &str) -> BTreeSet<String> {
    words(&code_only(source)).map(str::to_owned).collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}
