//! How a source file looks: its head, its length, its width.

use super::files::File;

/// The most lines of a source file.
const MAX_LINES: usize = 600;
/// The most characters of a line.
const MAX_COLUMNS: usize = 100;

/// A file that does not begin with words in a comment: `//!` in Rust, `//` in CUDA and C++.
pub(crate) fn head_fault(file: &File) -> Option<String> {
    let mark = if file.path.ends_with(".rs") { "//!" } else { "//" };
    let first = file.text.lines().next().unwrap_or("");
    if first.strip_prefix(mark).is_some_and(|words| words.starts_with(' ') && words.len() > 1) {
        return None;
    }
    let path = &file.path;
    Some(format!(
        "{path}: does not begin with `{mark}`; say in its first line what the file is for"
    ))
}

/// A file of too many lines.
pub(crate) fn length_fault(file: &File) -> Option<String> {
    let (path, lines) = (&file.path, file.text.lines().count());
    (lines > MAX_LINES)
        .then(|| format!("{path}: {lines} lines; split it into files of {MAX_LINES} lines at most"))
}

/// Lines that are too wide. Two kinds of line may be, as breaking them would make them worse: one
/// with a URL, and one that holds nothing but a string literal (a format that is easier to read in
/// one piece).
pub(crate) fn width_faults(file: &File) -> Vec<String> {
    let too_wide = |line: &str| {
        line.chars().count() > MAX_COLUMNS
            && !line.contains("://")
            && !line.trim_start().starts_with('"')
    };
    let fault = |(i, line): (usize, &str)| {
        let (path, columns) = (&file.path, line.chars().count());
        format!("{path}:{}: {columns} columns; break the line at {MAX_COLUMNS}", i + 1)
    };
    file.text.lines().enumerate().filter(|(_, line)| too_wide(line)).map(fault).collect()
}
