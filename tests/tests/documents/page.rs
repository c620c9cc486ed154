//! The commands of a page: the lines of its `sh` blocks, and code spans in its prose and tables.

use crate::files::File;

/// A command as shown on a page.
#[derive(Debug)]
pub(crate) struct Shown {
    /// Number of its first line, from 1.
    pub(crate) line: usize,
    pub(crate) words: Vec<String>,
    /// True in a code block; false in text, where a command may appear without arguments.
    pub(crate) is_fenced: bool,
}

/// The commands of a page; the line of a code span is the first line of its paragraph.
pub(crate) fn shown(page: &File) -> Vec<Shown> {
    let mut found = Vec::new();
    let mut line = 1;
    for (i, part) in page.text.split("```").enumerate() {
        match (i % 2 == 1, part.strip_prefix("sh\n")) {
            (false, _) => spans(part, line, &mut found),
            (true, Some(block)) => {
                let mut at = line + 1;
                for command in block.replace("\\\n", "\0").lines() {
                    let all = commands(&command.replace('\0', " ")).into_iter();
                    found.extend(all.map(|words| Shown { line: at, words, is_fenced: true }));
                    at += 1 + command.matches('\0').count();
                }
            }
            (true, None) => {}
        }
        line += part.matches('\n').count();
    }
    found
}

/// The code spans in prose that begins at a line.
fn spans(prose: &str, mut line: usize, found: &mut Vec<Shown>) {
    for (i, part) in prose.split('`').enumerate() {
        if i % 2 == 1 {
            let all = commands(&part.replace("\\|", "|")).into_iter();
            found.extend(all.map(|words| Shown { line, words, is_fenced: false }));
        }
        line += part.matches('\n').count();
    }
}

/// The commands in a line of shell, each as its words; without comments.
fn commands(text: &str) -> Vec<Vec<String>> {
    let mut all: Vec<Vec<String>> = vec![Vec::new()];
    let (mut word, mut quote) = (None::<String>, None);
    for c in text.chars().chain([' ']) {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            (c, Some(_)) => word.get_or_insert_default().push(c),
            ('\'' | '"', None) => {
                word.get_or_insert_default();
                quote = Some(c);
            }
            ('#', None) if word.is_none() => break,
            (c, None) if c.is_whitespace() || ";|&".contains(c) => {
                all.last_mut().expect("one").extend(word.take());
                if !c.is_whitespace() {
                    all.push(Vec::new());
                }
            }
            (c, None) => word.get_or_insert_default().push(c),
        }
    }
    all.last_mut().expect("one").extend(word);
    all.retain(|words| !words.is_empty());
    all
}
