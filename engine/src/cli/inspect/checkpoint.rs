//! `onegraph inspect CHECKPOINT`: which program wrote a checkpoint, and whether it is intact.

use std::path::Path;

use crate::EngineError;
use crate::checkpoint;
use crate::progress::counted;
use crate::run_dir::{Choice, RunDir};

/// True if a folder is a checkpoint or a run.
pub(super) fn is_of(path: &Path) -> bool {
    checkpoint::choose(path, Choice::Last).is_ok() || RunDir::open(path).is_ok()
}

/// Reads and describes the checkpoint at `path`, or the last one of the run there.
pub(super) fn run(path: &Path) -> Result<(), EngineError> {
    let (path, _) = checkpoint::choose(path, Choice::Last)?;
    let (meta, _) = checkpoint::open(&path)?;
    let writer = meta.version.as_deref().map(|version| format!("onegraph {version}"));
    let changes = meta.overrides.iter();
    let changes = changes.map(|of| format!("after step {}: {}\n", of.after_step, of.change));
    let changes: String = changes.collect();
    let sums: String = meta.sha256.iter().map(|(file, sum)| format!("{sum}  {file}\n")).collect();
    super::super::print(&format!(
        "{}: {}, {}\nwritten by {} in format {}\n{changes}whole, with these SHA-256:\n{sums}",
        path.display(),
        counted(meta.steps_done as usize, "step"),
        counted(meta.categories.len(), "class"),
        writer.as_deref().unwrap_or("an older onegraph"),
        meta.format,
    ))
}
