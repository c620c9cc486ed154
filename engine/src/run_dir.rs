//! The directory of a run: config, log, metrics, checkpoints, pictures, report.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;
use dali::{DaliError, Lock, Owner};
use serde_json::Value;

use crate::error::EngineError;

/// A run directory. A new run gets an unused name, and never modifies an older run.
#[derive(Debug, Clone)]
pub struct RunDir {
    path: PathBuf,
    /// The lock of the only process that may write into the directory.
    lock: Option<Arc<Lock>>,
}

const LOCK: &str = ".onegraph-lock";

/// Selects a checkpoint of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Choice {
    /// The checkpoint with the best score, or the last if there was no evaluation.
    Best,
    /// The last checkpoint.
    Last,
}

impl Choice {
    /// The choice with this name.
    ///
    /// # Errors
    /// [`EngineError::Usage`] for an unknown name.
    pub fn of(name: &str) -> Result<Self, EngineError> {
        let fault = format!("checkpoint is `{name}`; it must be best or last");
        Self::from_str(name, false).map_err(|_| EngineError::Usage(fault))
    }
}

/// The path of the best checkpoint, relative to the run, and its score in words, from `best.json`.
pub(crate) fn best_of(run: &Path) -> Option<(String, String)> {
    let best: Value = serde_json::from_slice(&fs::read(run.join("best.json")).ok()?).ok()?;
    // `kept` lists the best checkpoints that still exist.
    let ap = best["kept"].get(0).unwrap_or(&best)["ap"].as_f64()?;
    let metric = best["metric"].as_str().unwrap_or("best");
    Some((best["checkpoint"].as_str()?.to_string(), format!("{metric} AP {ap:.3}")))
}

impl RunDir {
    /// Creates `parent/name`, or `parent/name-2`, `-3` .. if that exists, and locks it.
    ///
    /// # Errors
    /// [`EngineError::Io`] if the directory cannot be created or locked.
    pub fn create(parent: &Path, name: &str) -> Result<Self, EngineError> {
        Self::create_where(parent, name, &|_| Ok(true))
    }

    /// Like [`Self::create`], with the first name that also satisfies `is_free`.
    ///
    /// # Errors
    /// As for [`Self::create`], and errors of `is_free`.
    pub(crate) fn create_where(
        parent: &Path,
        name: &str,
        is_free: &dyn Fn(&str) -> Result<bool, EngineError>,
    ) -> Result<Self, EngineError> {
        make_dir(parent)?;
        for attempt in 1.. {
            let name = Self::numbered(name, attempt);
            let path = parent.join(&name);
            match fs::create_dir(&path) {
                Ok(()) => {
                    let is_free = is_free(&name);
                    if matches!(is_free, Ok(true)) {
                        return Self { path, lock: None }.locked();
                    }
                    // The directory is empty, and was created above.
                    let _ = fs::remove_dir(&path);
                    is_free?;
                }
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(source) => return Err(EngineError::Io { path, source }),
            }
        }
        unreachable!("names do not run out")
    }

    /// Opens the directory of an existing run for reading.
    ///
    /// # Errors
    /// [`EngineError::Usage`] if it is not a run directory.
    pub fn open(path: &Path) -> Result<Self, EngineError> {
        if path.join("config.toml").is_file() || path.join("last_checkpoint").is_file() {
            return Ok(Self { path: path.to_path_buf(), lock: None });
        }
        Err(EngineError::Usage(format!(
            "{} is not a run directory: it has neither config.toml nor last_checkpoint",
            path.display()
        )))
    }

    /// The directory name of the `number`th run called `name`.
    pub(crate) fn numbered(name: &str, number: u32) -> String {
        if number == 1 { name.to_string() } else { format!("{name}-{number}") }
    }

    /// The last run called `name` in `parent` that has a checkpoint. Runs with the same name have
    /// the directories `name`, `name-2`, `name-3` ..
    pub fn last_of_name(parent: &Path, name: &str) -> Option<PathBuf> {
        let exist =
            (1..).map(|n| parent.join(Self::numbered(name, n))).take_while(|path| path.is_dir());
        exist.filter(|path| path.join("last_checkpoint").is_file()).last()
    }

    /// The directory of a run, without a lock.
    pub fn of_another(path: &Path) -> Self {
        Self { path: path.to_path_buf(), lock: None }
    }

    /// Locks the directory: no other process writes into it while this value or a clone exists.
    ///
    /// # Errors
    /// [`EngineError::Usage`] names the process that holds the lock.
    pub fn locked(self) -> Result<Self, EngineError> {
        match Lock::take(&self.join(LOCK)) {
            Ok(lock) => Ok(Self { lock: Some(Arc::new(lock)), ..self }),
            Err(fault) => Err(self.taken(fault)),
        }
    }

    /// Checks that the directory still exists and that this process still holds its lock, if it had
    /// one. A removed lock file is created again.
    ///
    /// # Errors
    /// [`EngineError::Usage`] names the process that now holds the lock; [`EngineError::Io`] if the
    /// directory is gone.
    pub fn check_lock(&self) -> Result<(), EngineError> {
        self.check_there()?;
        let checked = self.lock.as_ref().map_or(Ok(()), |lock| lock.check());
        checked.map_err(|fault| self.taken(fault))
    }

    /// The previous owner of the lock, if it ended without releasing it.
    pub fn replaced(&self) -> Option<&Owner> {
        self.lock.as_ref()?.replaced()
    }

    /// The process that currently holds the lock, if any.
    pub(crate) fn owner(&self) -> Option<Owner> {
        Lock::owner(&self.join(LOCK)).ok().flatten()
    }

    /// True if the last owner of the lock ended without releasing it.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.join(LOCK).exists() && self.owner().is_none()
    }

    fn taken(&self, fault: DaliError) -> EngineError {
        match fault {
            DaliError::Locked { path, owner } => EngineError::Usage(format!(
                "{} is in use by {owner}: wait until it ends, or stop it{}",
                self.path.display(),
                owner.if_gone(&path)
            )),
            // An I/O error on the lock file is not reported as an error in the data.
            DaliError::Io { path, source, .. } => EngineError::Io { path, source },
            fault => fault.into(),
        }
    }

    /// Removes the directory if it contains only the lock, so that a run that never began leaves no
    /// files.
    pub fn discard_if_empty(self) {
        drop(self.lock);
        // Fails if the directory contains files. Other errors are ignored too: the caller reports
        // the one that stopped the run.
        let _ = fs::remove_dir(&self.path);
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path in the directory.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file with [`dali::file::write`].
    ///
    /// # Errors
    /// [`EngineError::Io`] names the file, or reports that the directory is gone.
    pub fn write(&self, name: &str, contents: &[u8]) -> Result<PathBuf, EngineError> {
        self.check_there()?;
        let path = self.path.join(name);
        replace(&path, contents)?;
        Ok(path)
    }

    /// Creates a folder in the directory, if missing.
    ///
    /// # Errors
    /// [`EngineError::Io`] names the folder, or reports that the directory is gone.
    pub(crate) fn folder(&self, name: &str) -> Result<PathBuf, EngineError> {
        self.check_there()?;
        let path = self.path.join(name);
        make_one(&path)?;
        Ok(path)
    }

    /// Checks that the directory exists. It is never created again, since without its old files it
    /// would not be a valid run.
    fn check_there(&self) -> Result<(), EngineError> {
        if self.path.is_dir() {
            return Ok(());
        }
        let gone = std::io::Error::new(ErrorKind::NotFound, "the run directory is gone");
        Err(io(&self.path)(gone))
    }
}

/// True if a path is a URI, valid or not, with any scheme.
pub(crate) fn is_remote(path: &Path) -> bool {
    let scheme = path.to_str().and_then(|text| text.split_once("://"));
    scheme.is_some_and(|(scheme, _)| {
        !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

/// Fails if the value of `key` is a URI: only local paths are allowed.
///
/// # Errors
/// [`EngineError::Usage`] names the key.
pub(crate) fn require_local(path: &Path, key: &str) -> Result<(), EngineError> {
    match is_remote(path) {
        true => Err(EngineError::Usage(format!(
            "{key} is {}, but it must be a local path",
            path.display()
        ))),
        false => Ok(()),
    }
}

/// Writes a file with [`dali::file::write`], and creates its folder if missing.
///
/// # Errors
/// [`EngineError::Usage`] for a URI, or if the folder's path is a file; [`EngineError::Io`] names
/// the file.
pub fn write_whole(path: &Path, contents: &[u8]) -> Result<(), EngineError> {
    path.parent().map_or(Ok(()), make_dir)?;
    replace(path, contents)
}

/// Like [`write_whole`], in an existing folder.
///
/// # Errors
/// [`EngineError::Io`] names the file.
pub(crate) fn replace(path: &Path, contents: &[u8]) -> Result<(), EngineError> {
    dali::file::write(path, |out| out.write_all(contents)).map_err(io(path))
}

/// Creates a directory and its parents, if missing.
///
/// # Errors
/// [`EngineError::Usage`] for a URI, or if a file has this name; [`EngineError::Io`] if creation
/// fails.
pub(crate) fn make_dir(path: &Path) -> Result<(), EngineError> {
    require_local(path, "the output")?;
    if path.is_file() {
        let message =
            format!("{} is a file, but a directory should be created there", path.display());
        return Err(EngineError::Usage(message));
    }
    fs::create_dir_all(path).map_err(|e| {
        let message = format!("the directory cannot be created: {e}");
        io(path)(std::io::Error::new(e.kind(), message))
    })
}

/// Creates a directory, if missing; its parent must exist.
///
/// # Errors
/// [`EngineError::Io`] names it.
pub(crate) fn make_one(path: &Path) -> Result<(), EngineError> {
    match fs::create_dir(path) {
        Err(fault) if fault.kind() != ErrorKind::AlreadyExists => Err(io(path)(fault)),
        _ => Ok(()),
    }
}

/// Adds the file to an I/O error.
pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> EngineError {
    let path = path.to_path_buf();
    move |source| EngineError::Io { path, source }
}

#[cfg(test)]
mod tests {
    use super::RunDir;

    #[test]
    fn last_run_of_name_with_checkpoint_is_found() {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let last = || RunDir::last_of_name(parent.path(), "run");
        assert_eq!(last(), None);
        let runs: Vec<_> =
            (0..3).map(|_| RunDir::create(parent.path(), "run").expect("a run")).collect();
        assert_eq!(last(), None, "none has a checkpoint");
        for run in &runs[..2] {
            run.write("last_checkpoint", b"checkpoints/step_00000001").expect("a file");
        }
        assert_eq!(last(), Some(parent.path().join("run-2")));
    }

    #[test]
    fn active_run_directory_is_locked() {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let run = RunDir::create(parent.path(), "run").expect("a run directory");
        run.write("config.toml", b"x = 1").expect("a file");
        let open = || RunDir::open(run.path()).expect("to read");
        let refused = open().locked().expect_err("it is locked").to_string();
        assert!(refused.contains(&format!("process {}", std::process::id())), "{refused}");
        let path = run.path().to_path_buf();
        drop(run);
        let again = RunDir::open(&path).expect("to read").locked().expect("it is free");
        std::fs::remove_file(path.join(super::LOCK)).expect("it is there");
        again.check_lock().expect("taken again");
        assert!(RunDir::open(&path).expect("to read").locked().is_err(), "it is locked again");
    }
}
