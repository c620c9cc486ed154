//! The commands of a page: the lines of its `sh` blocks, and spans of code in its prose and tables.

use crate::files::File;

/// A command as a page shows it.
#[derive(Debug)]
pub(crate) struct Shown {
    /// Where it begins, from 1.
    pub(crate) line: usize,
    pub(crate) words: Vec<String>,
    /// In a block of code; else in the text, where a command's name may stand for it.
    pub(crate) is_fenced: bool,
}

impl Shown {
    pub(crate) fn text(&self) -> String {
        self.words.join(" ")
    }
}

/// Languages of blocks that hold no commands; those of Python are run by `python/tests`.
const NO_COMMANDS: [&str; 4] = ["text", "toml", "cpp", "python"];

/// The commands of a page, and blocks that do not say what they hold.
pub(crate) fn shown(page: &File) -> (Vec<Shown>, Vec<String>) {
    let (mut found, mut faults) = (Vec::new(), Vec::new());
    let mut block: Option<&str> = None;
    // The line and text of what is not complete yet.
    let (mut continued, mut prose) = (None::<(usize, String)>, (1, String::new()));
    for (i, line) in page.text.lines().enumerate() {
        let number = i + 1;
        match (line.strip_prefix("```"), block) {
            (Some(language), None) => {
                block = Some(language);
                found.extend(spans(&std::mem::take(&mut prose)));
                if language != "sh" && !NO_COMMANDS.contains(&language) {
                    faults.push(format!(
                        "{}:{number}: a block of `{language}`: begin it with ```sh (commands) or \
                         with one of {NO_COMMANDS:?}",
                        page.path
                    ));
                }
            }
            (Some(_), Some(_)) => (block, prose) = (None, (number + 1, String::new())),
            (None, Some("sh")) => {
                let (first, mut text) = continued.take().unwrap_or((number, String::new()));
                text += line.strip_suffix('\\').unwrap_or(line);
                match line.ends_with('\\') {
                    true => continued = Some((first, text)),
                    false => found.extend(commands(&text).into_iter().map(|words| Shown {
                        line: first,
                        words,
                        is_fenced: true,
                    })),
                }
            }
            (None, Some(_)) => {}
            (None, None) if line.is_empty() => {
                found.extend(spans(&std::mem::replace(&mut prose, (number + 1, String::new()))));
            }
            (None, None) => prose.1 += &format!("{line}\n"),
        }
    }
    found.extend(spans(&prose));
    (found, faults)
}

/// The spans of code in a paragraph that begins at a line; each row of a table is one.
fn spans((first, text): &(usize, String)) -> Vec<Shown> {
    let mut line = *first;
    let mut found = Vec::new();
    for (i, part) in text.split('`').enumerate() {
        if i % 2 == 1 {
            let is_fenced = false;
            let all = commands(&part.replace("\\|", "|")).into_iter();
            found.extend(all.map(|words| Shown { line, words, is_fenced }));
        }
        line += part.matches('\n').count();
    }
    found
}

/// The commands of a line of shell, each as its words; without comments.
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

#[test]
fn blocks_tables_and_text_give_their_commands() {
    let text = "Run `a\nb c`.\n\n| `x \\| y` |\n\n```sh\na 'b c' \\\n  d # no\nX=1 e; f && g\n```\n\
                ```text\nno\n```\n```\nno\n```\n`end`";
    let (found, faults) = shown(&File { path: "p.md".into(), text: text.into() });
    let found: Vec<(usize, String)> = found.iter().map(|c| (c.line, c.words.join("_"))).collect();
    let found: Vec<(usize, &str)> = found.iter().map(|(line, text)| (*line, &**text)).collect();
    let fenced = [(7, "a_b c_d"), (9, "X=1_e"), (9, "f"), (9, "g")];
    let all = [&[(1, "a_b_c"), (4, "x"), (4, "y")][..], &fenced, &[(17, "end")]].concat();
    assert_eq!(found, all);
    assert!(faults.len() == 1 && faults[0].starts_with("p.md:14: "), "{faults:?}");
}
