//! The files of the checkout.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A text file of the checkout.
#[derive(Debug, Clone)]
pub(crate) struct File {
    /// From the checkout's root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    #[cfg(test)]
    pub(crate) fn new(path: &str, text: &str) -> Self {
        File { path: path.into(), text: text.into() }
    }

    /// The file's name without its folder.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

/// The root of the checkout.
pub(crate) fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("the package `tests` stands in the workspace").to_path_buf()
}

/// All text files that git tracks or would track; without git, all but what is built.
pub(crate) fn tracked() -> Vec<File> {
    let root = root();
    let mut paths = listed_by_git(&root).unwrap_or_else(|| walked(&root));
    paths.sort_unstable();
    let read = |path: String| {
        // A file that is deleted but still in git's index, or that holds no text, is none here.
        let text = std::fs::read_to_string(root.join(&path)).ok()?;
        Some(File { path, text })
    };
    let files: Vec<File> = paths.into_iter().filter_map(read).collect();
    assert!(files.iter().any(|f| f.path == "Cargo.toml"), "{}: no checkout", root.display());
    files
}

/// `None` without git, or where the root is no checkout of its own (an unpacked archive that lies
/// inside another repository lists nothing).
fn listed_by_git(root: &Path) -> Option<Vec<String>> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
    let list = String::from_utf8(output.stdout).ok()?;
    let paths: Vec<String> = list.split_terminator('\0').map(str::to_owned).collect();
    let whole = output.status.success() && paths.iter().any(|path| path == "Cargo.toml");
    whole.then_some(paths)
}

fn walked(root: &Path) -> Vec<String> {
    /// Folders that `.gitignore` names, and git's own.
    const SKIPPED: [&str; 3] = ["target", "runs", ".git"];
    let mut paths = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(root.join(&folder)).expect("a folder of the checkout");
        for entry in entries {
            let entry = entry.expect("an entry of the checkout");
            let name = entry.file_name().to_string_lossy().into_owned();
            if folder.is_empty() && SKIPPED.contains(&name.as_str()) {
                continue;
            }
            let path = format!("{folder}{name}");
            match entry.file_type().expect("the type of an entry") {
                kind if kind.is_dir() => folders.push(format!("{path}/")),
                kind if kind.is_file() => paths.push(path),
                _ => {}
            }
        }
    }
    paths
}

#[test]
fn the_walk_misses_nothing_that_git_lists() {
    let (root, this) = (root(), "tests/tests/tidy/files.rs");
    let walked = walked(&root);
    assert!(walked.iter().any(|path| path == this));
    for path in listed_by_git(&root).unwrap_or_default() {
        assert!(walked.contains(&path) || !root.join(&path).is_file(), "{path}");
    }
}
