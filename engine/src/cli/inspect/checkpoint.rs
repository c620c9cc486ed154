//! `onegraph inspect CHECKPOINT`: shows which version wrote a checkpoint, and verifies its files.

use std::path::Path;

use crate::EngineError;
use crate::checkpoint;
use crate::progress::counted;
use crate::run_dir::{Choice, RunDir};

/// True if a folder is a checkpoint or run directory.
pub(super) fn is_of(path: &Path) -> bool {
    checkpoint::choose(path, Choice::Last).is_ok() || RunDir::open(path).is_ok()
}

/// Verifies and describes the checkpoint at `path`, or the last checkpoint of the run at `path`.
pub(super) fn run(path: &Path) -> Result<(), EngineError> {
    let (path, _) = checkpoint::choose(path, Choice::Last)?;
    let (meta, _) = checkpoint::open(&path)?;
    let writer = meta.version.as_deref().map(|version| format!("onegraph {version}"));
    let changes = meta.overrides.iter();
    let changes = changes.map(|of| format!("after step {}: {}\n", of.after_step, of.change));
    let changes: String = changes.collect();
    let sums: String = meta.sha256.iter().map(|(file, sum)| format!("{sum}  {file}\n")).collect();
    super::super::print(&format!(
        "{}: {}, {}\nwritten by {} in format {}\n{changes}intact, with these SHA-256 sums:\n{sums}",
        path.display(),
        counted(meta.steps_done as usize, "step"),
        counted(meta.categories.len(), "class"),
        writer.as_deref().unwrap_or("an older onegraph"),
        meta.format,
    ))
}
