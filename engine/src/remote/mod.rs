//! S3 URIs instead of local paths. Inputs are first downloaded (staged) to a local directory;
//! outputs are written to a local directory that is synchronized with S3. Local paths are used
//! directly.

mod runs;
mod stage;
mod store;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use dali::{DaliError, Store};

use crate::error::EngineError;
use crate::progress::Progress;
use crate::run_dir::{Choice, RunDir};

pub(crate) use crate::run_dir::{is_remote, require_local};
pub(crate) use runs::Kept;

/// The default staging directory.
const STAGE: &str = "runs/stage";

static CHOSEN: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Sets the staging directory.
pub fn stage_into(folder: &Path) {
    *CHOSEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(folder.to_path_buf());
}

/// The staging directory.
fn staged_into() -> PathBuf {
    let chosen = CHOSEN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    chosen.unwrap_or_else(|| STAGE.into())
}

/// The local file or directory for `path`: the staged copy of a URI, else `path` itself.
///
/// # Errors
/// [`EngineError::Remote`] for a failed transfer; [`EngineError::Usage`] for an invalid URI.
pub fn local(path: &Path) -> Result<PathBuf, EngineError> {
    if is_remote(path) { stage::whole(path) } else { Ok(path.to_path_buf()) }
}

/// Like [`local`], for a file next to a weights file; returns a URI unchanged if it does not exist
/// in S3.
///
/// # Errors
/// As for [`local`].
pub(crate) fn sibling(path: &Path) -> Result<PathBuf, EngineError> {
    match local(path) {
        Err(EngineError::Usage(_)) if is_remote(path) => Ok(path.to_path_buf()),
        found => found,
    }
}

/// The name to show for a run directory: its URI if it is synchronized with S3, else its path.
pub(crate) fn name_of(run: &Path) -> String {
    runs::name_of(run)
}

/// The local directory of a run for detection. Only the selected checkpoint is staged.
///
/// # Errors
/// As for [`local`]; [`EngineError::Usage`] if the run has continued both in S3 and locally.
pub fn trained(run: &Path, choice: Choice) -> Result<PathBuf, EngineError> {
    if is_remote(run) { runs::trained(run, choice) } else { Ok(run.to_path_buf()) }
}

/// The local directory of a run for resuming. All files are staged.
///
/// # Errors
/// As for [`trained`].
pub(crate) fn resumed(run: &Path) -> Result<PathBuf, EngineError> {
    if is_remote(run) { runs::resumed(run) } else { Ok(run.to_path_buf()) }
}

/// The local run directory for a path that rank 0 sent. A resumed run is staged on this machine
/// too, if necessary.
///
/// # Errors
/// As for [`trained`].
pub(crate) fn of_another(run: &Path, resume: bool) -> Result<RunDir, EngineError> {
    if resume {
        runs::resumed_by_another(run)?;
    }
    Ok(RunDir::of_another(run))
}

/// Opens a store. Pixels from S3 are downloaded in the background.
///
/// # Errors
/// As for [`local`] and `open`.
pub(crate) fn open_store(
    dir: &Path,
    open: fn(&Path) -> Result<Store, DaliError>,
) -> Result<Store, EngineError> {
    if is_remote(dir) { store::open(dir, open) } else { Ok(open(dir)?) }
}

/// Builds a store at `out` with `make`, which is called with a local directory.
///
/// # Errors
/// As for [`local`] and `make`; [`EngineError::Usage`] if the destination exists and `overwrite` is
/// false.
pub(crate) fn make_store<T>(
    out: &Path,
    overwrite: bool,
    make: impl FnOnce(&Path, bool) -> Result<T, EngineError>,
) -> Result<T, EngineError> {
    if is_remote(out) { store::make(out, overwrite, make) } else { make(out, overwrite) }
}

/// Creates the directory of a new run.
///
/// # Errors
/// As for [`local`] and [`RunDir::create`].
pub(crate) fn new_run(parent: &Path, name: &str) -> Result<RunDir, EngineError> {
    if is_remote(parent) { runs::create(parent, name) } else { RunDir::create(parent, name) }
}

/// The last run with this name that has a checkpoint, like [`RunDir::last_of_name`].
///
/// # Errors
/// As for [`trained`].
pub(crate) fn last_run(parent: &Path, name: &str) -> Result<Option<PathBuf>, EngineError> {
    match is_remote(parent) {
        true => runs::last_of_name(parent, name),
        false => Ok(RunDir::last_of_name(parent, name)),
    }
}

/// Starts to synchronize a run directory with S3, if it is a staged one.
///
/// # Errors
/// As for [`local`].
pub(crate) fn keep(run: &RunDir, progress: Progress) -> Result<Option<Kept>, EngineError> {
    runs::keep(run.path(), progress)
}
