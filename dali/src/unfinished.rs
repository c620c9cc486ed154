//! Paths that are being written; if a signal ends the process, they are removed first.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of attempts to remove a folder into which other threads still write.
const MAX_TRIES: usize = 100;

static PATHS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Marks a file or folder as incomplete while this value exists.
#[derive(Debug)]
pub struct Unfinished {
    path: PathBuf,
}

impl Unfinished {
    /// Marks `path`.
    #[must_use]
    pub fn mark(path: &Path) -> Self {
        Undisturbed::begin().mark(path)
    }
}

/// While this value exists, no signal ends the process, so that a path can be created and then
/// marked. Meanwhile, the same thread must not set or drop other marks.
#[derive(Debug)]
pub(crate) struct Undisturbed(MutexGuard<'static, Vec<PathBuf>>);

impl Undisturbed {
    pub(crate) fn begin() -> Self {
        Self(PATHS.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Marks `path`, and allows signals to end the process again.
    pub(crate) fn mark(mut self, path: &Path) -> Unfinished {
        self.0.push(path.to_path_buf());
        Unfinished { path: path.to_path_buf() }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let mut paths = PATHS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = paths.iter().position(|path| *path == self.path) {
            paths.swap_remove(place);
        }
    }
}

/// Removes every marked path, then calls `end`, which ends the process. Other threads may still be
/// writing.
///
/// The list of marks stays locked: a thread must unmark a path before it renames the path to its
/// final name, so no incomplete path gets a final name.
pub fn remove_all_and(end: impl FnOnce()) {
    let paths = PATHS.lock().unwrap_or_else(PoisonError::into_inner);
    for path in paths.iter() {
        // After this rename, threads that still write can no longer add files by the old path.
        let mut name = path.as_os_str().to_os_string();
        name.push(".removed");
        let moved = PathBuf::from(name);
        let path = if fs::rename(path, &moved).is_ok() { &moved } else { path };
        let remove =
            || if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        // A thread that resolved the old path earlier may still add a file, so removal is repeated.
        // Failure is not reported, as the process ends.
        let _ = (0..MAX_TRIES).find(|_| remove().is_ok() || !path.exists());
    }
    end();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remove_all_removes_only_marked_files() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| folder.path().join(name);
        for name in ["half", "whole"] {
            fs::create_dir(path(name)).expect("a folder");
            fs::write(path(name).join("file"), "x").expect("a file");
        }
        fs::write(path("half-file"), "x").expect("a file");
        let marks = ["half", "whole", "half-file"].map(|name| Unfinished::mark(&path(name)));
        let [half, whole, file] = marks;
        drop(whole);
        let mut ended = false;
        remove_all_and(|| ended = true);
        assert!(ended && path("whole").join("file").is_file());
        assert!(!path("half").exists() && !path("half-file").exists());
        drop((half, file));
    }
}
