//! Paths of one machine, which mean nothing on another.

use super::files::File;

/// Folders in which people and their tools keep checkouts, without the slashes around them: written
/// out they would be a fault of this file.
const FOLDERS: &[&str] = &["home", "root", "Users", "work", "workspace", "mnt"];

/// Lines that hold an absolute path into such a folder.
pub(crate) fn faults(file: &File) -> Vec<String> {
    let fault = |(i, line): (usize, &str)| {
        let found = FOLDERS.iter().find(|folder| holds(line, folder))?;
        Some(format!(
            "{}:{}: holds a path of one machine (/{found}/..); write it relative to the checkout \
             or take it from an environment variable",
            file.path,
            i + 1
        ))
    };
    file.text.lines().enumerate().filter_map(fault).collect()
}

/// True if `/folder/` stands on the line as the beginning of a path.
fn holds(line: &str, folder: &str) -> bool {
    let needle = format!("/{folder}/");
    let begins = |at: usize| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "_-.~/>})]*".contains(c))
    };
    line.match_indices(&needle).any(|(at, _)| begins(at))
}
