//! The files of the checkout.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A text file of the checkout.
#[derive(Debug, Clone)]
pub(crate) struct File {
    /// Path relative to the root of the checkout, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// The root of the checkout.
pub(crate) fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("the package `tests` is in the workspace").to_path_buf()
}

/// The packages of the workspace, as `cargo metadata` describes them.
pub(crate) fn packages() -> Vec<Value> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--no-deps", "--format-version", "1"]).current_dir(root());
    let output = command.output().expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    serde_json::from_value(metadata["packages"].take()).expect("an array")
}

/// All text files, by path, except those in `.gitignore`.
pub(crate) fn tracked() -> Vec<File> {
    const SKIPPED: [&str; 3] = ["target", "runs", ".git"];
    let (mut files, mut folders) = (Vec::new(), vec![String::new()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root().join(&folder)).expect("a folder of the checkout") {
            let entry = entry.expect("an entry of the checkout");
            let path = format!("{folder}{}", entry.file_name().to_string_lossy());
            let kind = entry.file_type().expect("the type of an entry");
            if SKIPPED.contains(&path.as_str()) {
                continue;
            }
            if kind.is_dir() {
                folders.push(format!("{path}/"));
            }
            // Files that are not text are skipped.
            if kind.is_file()
                && !path.ends_with(".swp")
                && let Ok(text) = std::fs::read_to_string(entry.path())
            {
                files.push(File { path, text });
            }
        }
    }
    files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    files
}
