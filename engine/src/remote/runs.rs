//! Run directories in S3. A run is trained in a local directory, and a thread uploads changes to
//! S3.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use dali::Owner;
use s3::{Address, Bucket, Mirror, S3Error};

use super::stage::Staging;
use super::staged_into;
use crate::error::EngineError;
use crate::progress::Progress;
use crate::run_dir::{Choice, RunDir, best_of, io};

/// Polling interval for changes.
const PAUSE: Duration = Duration::from_secs(10);
/// Files that refer to checkpoints, and are therefore uploaded after them.
const POINTERS: &[&str] = &["last_checkpoint", "best.json"];
/// File that marks a local directory with changes that were not uploaded to S3. Contains the owner
/// that made them.
const AHEAD: &str = ".onegraph-ahead";

/// Stages a run for detection: only the selected checkpoint.
pub(super) fn trained(run: &Path, choice: Choice) -> Result<PathBuf, EngineError> {
    let at = Address::parse(run)?;
    if let Some(place) = ahead(&at)? {
        return Ok(place);
    }
    let staging = Staging::begin(&at)?;
    let objects = staging.list()?;
    let inside = |prefix: String| {
        let inside = objects.iter().filter(move |(object, _)| object.at.key.starts_with(&prefix));
        inside.cloned().collect::<Vec<_>>()
    };
    let [last, best] = [0, 1].map(|i| inside(at.join(POINTERS[i]).key));
    if last.is_empty() {
        // Without `last_checkpoint`, the folder is a checkpoint directory, or not a run.
        staging.fetch(&objects)?;
        return Ok(staging.place);
    }
    staging.fetch(&[last, best].concat())?;
    let pointer = staging.place.join(POINTERS[0]);
    let name = fs::read_to_string(&pointer).map_err(io(&pointer))?;
    let folder = |name: &str| inside(format!("{}/", at.join(name.trim()).key));
    let best = best_of(&staging.place).filter(|_| choice == Choice::Best);
    let best = best.map(|(best, _)| folder(&best)).filter(|objects| !objects.is_empty());
    staging.fetch(&best.unwrap_or_else(|| folder(&name)))?;
    Ok(staging.place)
}

/// Stages a run for resuming.
pub(super) fn resumed(run: &Path) -> Result<PathBuf, EngineError> {
    let at = Address::parse(run)?;
    match ahead(&at)? {
        Some(place) => Ok(place),
        None => super::stage::whole(run),
    }
}

/// Stages the run on this machine, for a rank that got the directory from rank 0.
pub(super) fn resumed_by_another(run: &Path) -> Result<(), EngineError> {
    let Some(at) = Address::of_place(run, &staged_into()) else { return Ok(()) };
    resumed(Path::new(&at.to_string())).map(drop)
}

/// The local directory of a run, if it has changes that were never uploaded to S3.
///
/// # Errors
/// [`EngineError::Usage`] if another process has continued the run in S3 since.
fn ahead(at: &Address) -> Result<Option<PathBuf>, EngineError> {
    let place = at.below(&staged_into());
    let Ok(mark) = fs::read_to_string(place.join(AHEAD)) else { return Ok(None) };
    let owner = Mirror::owner(&Bucket::open(&at.bucket)?, at)?;
    if owner.as_ref().is_some_and(|owner| *owner != mark) {
        let (place, owner) = (place.display(), owner.unwrap_or_default());
        return Err(EngineError::Usage(format!(
            "{place} has steps that were never uploaded to {at}, and {} has continued the run \
             there since: to use the run in S3, remove {place} (copy it first to keep its steps)",
            owner.lines().next().unwrap_or_default()
        )));
    }
    Ok(Some(place))
}

/// Creates the local directory of a new run, under a name that is free both locally and in S3.
pub(super) fn create(parent: &Path, name: &str) -> Result<RunDir, EngineError> {
    let at = Address::parse(parent)?;
    let bucket = Bucket::open(&at.bucket)?;
    RunDir::create_where(&at.below(&staged_into()), name, &|name| {
        Ok(Mirror::claim(&bucket, &at.join(name), &owner())?)
    })
}

/// Stages the last run with this name that has a checkpoint in S3.
pub(super) fn last_of_name(parent: &Path, name: &str) -> Result<Option<PathBuf>, EngineError> {
    let at = Address::parse(parent)?;
    let bucket = Bucket::open(&at.bucket)?;
    let mut last = None;
    for number in 1.. {
        let run = at.join(&RunDir::numbered(name, number));
        if bucket.has(&run.join(POINTERS[0]).key)? {
            last = Some(run);
        } else if !bucket.has_inside(&run.key)? {
            break;
        }
    }
    last.map(|run| resumed(Path::new(&run.to_string()))).transpose()
}

/// The URI of a staged directory; the path of any other.
pub(super) fn name_of(run: &Path) -> String {
    let at = Address::of_place(run, &staged_into());
    at.map_or_else(|| run.display().to_string(), |at| at.to_string())
}

/// Identifies this process as the owner of a run.
fn owner() -> String {
    Owner::current().to_string()
}

/// Starts to synchronize a directory with S3, if it is a staged one.
pub(super) fn keep(run: &Path, progress: Progress) -> Result<Option<Kept>, EngineError> {
    let Some(at) = Address::of_place(run, &staged_into()) else { return Ok(None) };
    let bucket = Bucket::open(&at.bucket)?;
    // Everything is uploaded: existing objects may be older, or from a process that was killed.
    let mirror = Mirror::take(&bucket, &at, run, POINTERS, &owner())?;
    let mark = run.join(AHEAD);
    fs::write(&mark, mirror.own()).map_err(io(&mark))?;
    let (stop, stopped) = channel::<()>();
    let keeping = move || {
        let (mut mirror, mut told) = (mirror, String::new());
        while stopped.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
            let fault = mirror.update().err();
            let text = fault.as_ref().map(ToString::to_string).unwrap_or_default();
            if !text.is_empty() && text != told {
                progress.say(&format!("warning: {text}; the run continues locally"));
            }
            told = text;
            if matches!(fault, Some(S3Error::TakenOver { .. })) {
                break;
            }
        }
        mirror
    };
    let thread = std::thread::Builder::new().name("s3 run".into()).spawn(keeping);
    let thread = thread.map_err(io(run))?;
    Ok(Some(Kept { stop, thread, mark }))
}

/// The synchronization of a run with S3.
#[derive(Debug)]
pub(crate) struct Kept {
    stop: Sender<()>,
    thread: JoinHandle<Mirror>,
    mark: PathBuf,
}

impl Kept {
    /// Uploads the final changes to S3.
    ///
    /// # Errors
    /// [`EngineError::Remote`] if the upload fails; then only the local directory is complete.
    pub(crate) fn end(self) -> Result<(), EngineError> {
        drop(self.stop);
        let here = self.mark.parent().unwrap_or(&self.mark).to_path_buf();
        let behind = |fault: String| {
            let here = here.display();
            EngineError::Remote(format!(
                "{fault}; only the local copy of the run, {here}, is complete"
            ))
        };
        let Ok(mut mirror) = self.thread.join() else {
            return Err(behind("the thread that writes to S3 failed".into()));
        };
        mirror.update().map_err(|fault| behind(fault.to_string()))?;
        // If the marker file cannot be removed, the next use of the run compares all files with S3.
        let _ = fs::remove_file(&self.mark);
        Ok(())
    }

    /// Removes a run that never began, locally and in S3, so that its name is free again.
    pub(crate) fn discard(self) {
        drop(self.stop);
        // A second error is ignored: the caller reports the one that ended the run.
        let _ = self.thread.join().map(Mirror::release);
        let _ = fs::remove_file(&self.mark);
        let _ = self.mark.parent().map(fs::remove_dir);
    }
}
