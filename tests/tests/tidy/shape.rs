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

#[cfg(test)]
mod tests {
    use super::{head_fault, length_fault, width_faults};
    use crate::tidy::files::File;

    #[test]
    fn a_file_without_a_head_is_a_fault() {
        for text in ["", "// What it is.\n", "use std::fmt;\n//! Late.\n", "//!\n//! Late.\n"] {
            let fault = head_fault(&File::new("a/b.rs", text)).expect(text);
            assert!(fault.starts_with("a/b.rs: "), "{fault}");
        }
        assert_eq!(head_fault(&File::new("a/b.rs", "//! What it is for.\n")), None);
        assert_eq!(head_fault(&File::new("a/b.cuh", "// What it is for.\n")), None);
        for text in ["#pragma once\n// Late.\n", "//\n// Late.\n", "//! Of Rust.\n"] {
            let fault = head_fault(&File::new("a/b.cuh", text)).expect(text);
            assert!(fault.contains("does not begin with `//`"), "{fault}");
        }
    }

    #[test]
    fn a_file_of_601_lines_is_a_fault() {
        assert_eq!(length_fault(&File::new("a.rs", &"x\n".repeat(600))), None);
        let fault = length_fault(&File::new("a.rs", &"x\n".repeat(601))).expect("too long");
        assert!(fault.starts_with("a.rs: 601 lines"), "{fault}");
    }

    #[test]
    fn a_line_of_101_columns_is_a_fault_unless_it_cannot_be_broken() {
        let x = |n: usize| "x".repeat(n);
        let faults = |line: &str| width_faults(&File::new("a.rs", &format!("//! A.\n{line}\n")));
        assert_eq!(faults(&x(101)), ["a.rs:2: 101 columns; break the line at 100"]);
        assert_eq!(faults(&format!("// {}", x(98))).len(), 1);
        assert_eq!(faults(&format!("let a = \"{}\";", x(98))).len(), 1);
        for good in [x(100), "ü".repeat(100), format!("// https://{}", x(98))] {
            assert!(faults(&good).is_empty(), "{good}");
        }
        assert!(faults(&format!("    \"{}\",", x(98))).is_empty());
    }
}
