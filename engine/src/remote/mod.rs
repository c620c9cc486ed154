//! Addresses in S3 wherever a file or folder is named: what is read is staged to a folder of this
//! machine first, what is written is written there and kept up to date in S3. Paths of this machine
//! pass through unchanged. Only builds with the feature `s3` know addresses.

#[cfg(feature = "s3")]
mod runs;
#[cfg(feature = "s3")]
mod stage;
#[cfg(feature = "s3")]
mod store;
#[cfg(not(feature = "s3"))]
mod without;
#[cfg(not(feature = "s3"))]
use without as stage;
#[cfg(not(feature = "s3"))]
use without as runs;
#[cfg(not(feature = "s3"))]
use without as store;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use dali::{DaliError, Store};

use crate::error::EngineError;
use crate::progress::Progress;
use crate::run_dir::{Choice, RunDir};

pub(crate) use runs::Kept;

/// The folder of staged files, by default.
#[cfg(feature = "s3")]
const STAGE: &str = "runs/stage";

static CHOSEN: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Stages into this folder from now on.
pub fn stage_into(folder: &Path) {
    *CHOSEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(folder.to_path_buf());
}

/// The folder of staged files.
#[cfg(feature = "s3")]
fn staged_into() -> PathBuf {
    let chosen = CHOSEN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    chosen.unwrap_or_else(|| STAGE.into())
}

/// True if a path is an address, well formed or not, of S3 or of a store that nothing here knows.
pub(crate) fn is_remote(path: &Path) -> bool {
    let scheme = path.to_str().and_then(|text| text.split_once("://"));
    scheme.is_some_and(|(scheme, _)| {
        !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

/// Refuses an address where only a folder of this machine will do.
///
/// # Errors
/// [`EngineError::Usage`] names the key.
pub(crate) fn refuse(path: &Path, key: &str) -> Result<(), EngineError> {
    match is_remote(path) {
        true => Err(EngineError::Usage(format!(
            "{key} is {}; here it must be a local directory",
            path.display()
        ))),
        false => Ok(()),
    }
}

/// A file or folder of this machine with the contents of `path`: itself, or where it is staged.
///
/// # Errors
/// [`EngineError::Remote`] for anything that a transfer can meet; [`EngineError::Usage`] for a bad
/// address, or a build that knows none.
pub fn local(path: &Path) -> Result<PathBuf, EngineError> {
    if is_remote(path) { stage::whole(path) } else { Ok(path.to_path_buf()) }
}

/// The file beside weights that says with which config they were trained; `path` itself if there is
/// none in S3.
///
/// # Errors
/// As for [`local`].
pub(crate) fn beside(path: &Path) -> Result<PathBuf, EngineError> {
    match local(path) {
        Err(EngineError::Usage(_)) if is_remote(path) => Ok(path.to_path_buf()),
        found => found,
    }
}

/// The name of a run directory for whoever goes on with it: its address, if it is kept in S3.
pub(crate) fn name_of(run: &Path) -> String {
    runs::name_of(run)
}

/// A run directory of this machine, of which only the checkpoint of the choice is staged.
///
/// # Errors
/// As for [`local`]; [`EngineError::Usage`] if both S3 and this machine have gone on with the run.
pub fn trained(run: &Path, choice: Choice) -> Result<PathBuf, EngineError> {
    if is_remote(run) { runs::trained(run, choice) } else { Ok(run.to_path_buf()) }
}

/// A run directory of this machine, to go on with.
///
/// # Errors
/// As for [`trained`].
pub(crate) fn resumed(run: &Path) -> Result<PathBuf, EngineError> {
    if is_remote(run) { runs::resumed(run) } else { Ok(run.to_path_buf()) }
}

/// The run directory of this machine that another rank of the run names.
///
/// # Errors
/// As for [`trained`].
pub(crate) fn of_another(run: &Path, resume: bool) -> Result<RunDir, EngineError> {
    if resume {
        runs::resumed_by_another(run)?;
    }
    Ok(RunDir::of_another(run))
}

/// Opens a store, whose pixels may still arrive.
///
/// # Errors
/// As for [`local`] and `open`.
pub(crate) fn open_store(
    dir: &Path,
    open: fn(&Path) -> Result<Store, DaliError>,
) -> Result<Store, EngineError> {
    if is_remote(dir) { store::open(dir, open) } else { Ok(open(dir)?) }
}

/// Makes a store at `out` by `make`, which is given a folder of this machine.
///
/// # Errors
/// As for [`local`] and `make`; [`EngineError::Usage`] if there is something and it is not to be
/// replaced.
pub(crate) fn make_store<T>(
    out: &Path,
    overwrite: bool,
    make: impl FnOnce(&Path, bool) -> Result<T, EngineError>,
) -> Result<T, EngineError> {
    if is_remote(out) { store::make(out, overwrite, make) } else { make(out, overwrite) }
}

/// Makes the directory of a new run.
///
/// # Errors
/// As for [`local`] and [`RunDir::create`].
pub(crate) fn new_run(parent: &Path, name: &str) -> Result<RunDir, EngineError> {
    if is_remote(parent) { runs::create(parent, name) } else { RunDir::create(parent, name) }
}

/// The last run of a name that has a checkpoint, as [`RunDir::last_of_name`] finds it.
///
/// # Errors
/// As for [`trained`].
pub(crate) fn last_run(parent: &Path, name: &str) -> Result<Option<PathBuf>, EngineError> {
    match is_remote(parent) {
        true => runs::last_of_name(parent, name),
        false => Ok(RunDir::last_of_name(parent, name)),
    }
}

/// Keeps a run directory up to date in S3 from now on, if that is where it belongs.
///
/// # Errors
/// As for [`local`].
pub(crate) fn keep(run: &RunDir, progress: Progress) -> Result<Option<Kept>, EngineError> {
    runs::keep(run.path(), progress)
}
