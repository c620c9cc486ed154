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

#[cfg(test)]
mod tests {
    use super::faults;
    use crate::tidy::files::File;

    #[test]
    fn a_path_of_a_machine_is_a_fault_and_a_relative_one_is_none() {
        let home = |before: &str| format!("{before}/{}/me/x", "home");
        for before in ["", "see ", "\"", "(", "=", "`"] {
            let found = faults(&File::new("a.md", &format!("\n{}", home(before))));
            assert_eq!(found.len(), 1, "{before}");
            assert!(found[0].starts_with("a.md:2: "), "{}", found[0]);
        }
        for before in ["a", "..", "https://example.org", "<root>", "${HOME}", "~"] {
            assert!(faults(&File::new("a.md", &home(before))).is_empty(), "{before}");
        }
    }
}
