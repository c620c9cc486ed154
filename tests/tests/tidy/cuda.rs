//! How CUDA and C++ sources look: the header of a file of kernels, and the names that comments
//! quote.

use std::collections::BTreeSet;

use super::files::File;
use super::rust::code_only;

/// Where every `.cu` file holds kernels of training, with the header that CONTRIBUTING.md shows.
const KERNELS: &str = "kernels/src/";
const GLOSSARY: &str = "docs/glossary.md";
/// First cells of the heads of its tables.
const HEADS: [&str; 2] = ["letter", "noun"];
/// The lines after the tables, in this order.
const LINES: [&str; 4] = ["Launch: ", "Cost: ", "Numerics: ", "Edges: "];
/// Lines of the file that the sentence, or one of [`LINES`], may take.
const MAX_LINES: usize = 2;
/// The uses of a tensor by a kernel.
const USES: [&str; 4] = ["in", "out", "state", "scratch"];

/// True for CUDA and C++ sources and headers.
pub(crate) fn is_cuda(file: &File) -> bool {
    [".cu", ".cuh", ".cpp", ".h"].iter().any(|ending| file.path.ends_with(ending))
}

/// Headers of kernels that are not of the form: a sentence, tables of tensors, [`LINES`].
pub(crate) fn header_faults(files: &[File]) -> Vec<String> {
    let sources = |file: &&File| file.path.starts_with(KERNELS) && file.path.ends_with(".cu");
    let headers = files.iter().filter(|file| file.path.ends_with(".cuh"));
    let shared: BTreeSet<String> = headers.flat_map(|file| words_of(&file.text)).collect();
    let glossary = files.iter().find(|file| file.path == GLOSSARY).map_or("", |file| &file.text);
    let letters = letters_of(glossary);
    let mut faults = Vec::new();
    let mut count = 0;
    for file in files.iter().filter(sources) {
        count += 1;
        let mut known = words_of(&file.text);
        known.extend(shared.iter().cloned());
        let fault = |words: String| format!("{}: {words}", file.path);
        faults.extend(one_header(&file.text, &known, &letters).into_iter().map(fault));
    }
    if count == 0 {
        faults.push(format!("{KERNELS}: holds no CUDA source; this check proves nothing"));
    }
    faults
}

fn one_header(text: &str, known: &BTreeSet<String>, letters: &BTreeSet<String>) -> Vec<String> {
    let lines = text.lines().map_while(|line| line.strip_prefix("//"));
    let lines: Vec<&str> = lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    let paragraphs: Vec<&[&str]> = lines.split(|line| line.is_empty()).collect();
    let Some(end) = paragraphs.iter().position(|lines| lines[..].starts_with_line(LINES[0])) else {
        return vec![format!("its header has no line `{}`; see CONTRIBUTING.md", LINES[0].trim())];
    };
    let mut faults = Vec::new();
    let sentence = paragraphs[0].join(" ");
    if paragraphs[0].len() > MAX_LINES || !sentence.ends_with('.') || sentence.contains(". ") {
        faults.push(format!(
            "its header begins with \"{sentence}\"; begin with one sentence of at most \
             {MAX_LINES} lines"
        ));
    }
    if end < 2 {
        faults.push("its header has no table of tensors; write one below the sentence".into());
    }
    for table in &paragraphs[1..end.max(1)] {
        faults.extend(table_faults(table, known, letters));
    }
    faults.extend(line_faults(paragraphs[end]));
    faults
}

trait Lines {
    fn starts_with_line(&self, start: &str) -> bool;
}

impl Lines for [&str] {
    fn starts_with_line(&self, start: &str) -> bool {
        self.first().is_some_and(|line| line.starts_with(start))
    }
}

/// Rows of a table that are not `name  shape  type  use  meaning` in columns.
fn table_faults(
    table: &[&str],
    known: &BTreeSet<String>,
    letters: &BTreeSet<String>,
) -> Vec<String> {
    let titled = table.first().is_some_and(|line| !line.starts_with(' ') && line.ends_with(':'));
    let mut columns = None;
    let mut faults = Vec::new();
    for row in &table[usize::from(titled)..] {
        let cells = cells(row);
        let [(2, names), (_, shape), (_, kind), (_, used), (_, _)] = cells[..] else {
            faults.push(format!(
                "the row \"{row}\" of its header is not `name  shape  type  use  meaning`; write \
                 these five, two spaces in front and at least two between"
            ));
            continue;
        };
        let here: Vec<usize> = cells.iter().map(|(at, _)| *at).collect();
        if *columns.get_or_insert_with(|| here.clone()) != here {
            faults
                .push(format!("the row of `{names}` in its header stands out; align its columns"));
        }
        if !USES.contains(&used) {
            let uses = USES.join(", ");
            faults.push(format!("`{names}` is `{used}` in its header; write one of {uses}"));
        }
        if !shape.starts_with('[') || !shape.ends_with(']') || kind.contains(' ') {
            faults.push(format!(
                "`{names}` is `{shape}` of `{kind}` in its header; write a shape such as `[N, 4]` \
                 and a type such as `half/float`"
            ));
        }
        for name in words(names).filter(|name| !known.contains(*name)) {
            faults.push(format!(
                "its header speaks of `{name}`, which its code does not; use the kernel's names"
            ));
        }
        for word in words(shape).filter(|word| !word.starts_with(|c: char| c.is_ascii_digit())) {
            let letter = word.len() == 1 && word.starts_with(|c: char| c.is_ascii_uppercase());
            if letter && !letters.contains(word) {
                faults.push(format!(
                    "`{word}` in the shape of `{names}` is no letter of {GLOSSARY}; use one of \
                     them, or a name of the kernel's"
                ));
            } else if !letter && !known.contains(word) {
                faults.push(format!(
                    "`{word}` in the shape of `{names}` is no name in its code; use the kernel's \
                     names"
                ));
            }
        }
    }
    faults
}

/// [`LINES`] that are missing, out of order, or too long.
fn line_faults(lines: &[&str]) -> Vec<String> {
    let mut faults = Vec::new();
    let starts: Vec<usize> = LINES
        .iter()
        .filter_map(|start| lines.iter().position(|line| line.starts_with(start)))
        .collect();
    if starts.len() < LINES.len() || !starts.is_sorted() {
        let wanted = LINES.map(str::trim).join(" ");
        return vec![format!("its header lacks a line, or their order; write {wanted}")];
    }
    for (i, start) in LINES.iter().enumerate() {
        let end = starts.get(i + 1).copied().unwrap_or(lines.len());
        if end - starts[i] > MAX_LINES {
            faults.push(format!(
                "`{}` takes {} lines of its header; say it in {MAX_LINES}, and the rest below",
                start.trim(),
                end - starts[i]
            ));
        }
    }
    faults
}

/// Pieces of a row that stand two spaces or more apart, each with its column.
fn cells(row: &str) -> Vec<(usize, &str)> {
    let mut cells = Vec::new();
    let mut at = 0;
    loop {
        at += row[at..].len() - row[at..].trim_start().len();
        if at == row.len() {
            return cells;
        }
        let end = row[at..].find("  ").map_or(row.len(), |len| at + len);
        cells.push((at, &row[at..end]));
        at = end;
    }
}

/// Letters of the glossary: the first cells of its rows that are one capital in backticks.
fn letters_of(glossary: &str) -> BTreeSet<String> {
    let rows = glossary.lines().filter_map(|line| line.strip_prefix("| `"));
    let letters = rows.filter_map(|row| row.split_once("` |")).map(|(letter, _)| letter.to_owned());
    letters.filter(|letter| letter.len() == 1).collect()
}

/// Letters and nouns that the glossary explains twice.
pub(crate) fn glossary_faults(files: &[File]) -> Vec<String> {
    let Some(file) = files.iter().find(|file| file.path == GLOSSARY) else {
        return vec![format!("{GLOSSARY}: is missing; write down what letters and nouns mean")];
    };
    let mut seen = BTreeSet::new();
    let rows = file.text.lines().filter_map(|line| line.strip_prefix("| "));
    let entries = rows.filter_map(|row| row.split_once(" |")).map(|(entry, _)| entry);
    let twice = entries.filter(|entry| !HEADS.contains(entry) && !seen.insert(*entry));
    twice.map(|entry| format!("{GLOSSARY}: explains {entry} twice; give it one meaning")).collect()
}

/// Names in backticks in comments of CUDA and C++ sources that no code has: neither the file's own,
/// nor that of a file that the same comment names.
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
                // A comment that is quoted, and the arguments of a call, are no names.
                let name = quoted.split(['(', '/']).next().unwrap_or("");
                let missing = words(name).filter(|word| word.len() > 1 && !own.contains(*word));
                for word in missing {
                    let elsewhere = files.iter().filter(named);
                    if !elsewhere.into_iter().any(|other| words_of(&other.text).contains(word)) {
                        let path = &file.path;
                        faults.push(format!(
                            "{path}:{line}: speaks of `{word}`, which its code does not; correct \
                             the name, or name the file that has it"
                        ));
                    }
                }
            }
        }
    }
    faults
}

/// Runs of comment lines, each with the number of its first line.
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
