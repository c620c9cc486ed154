//! Writes a directory under a temporary name and renames it into place: it is never seen
//! half-written.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::error::DaliError;

/// A directory being written, `OUT.tmp-<pid>`; removed unless it is moved into place.
#[derive(Debug)]
pub(crate) struct TemporaryDir {
    path: PathBuf,
    out: PathBuf,
    placed: bool,
}

impl TemporaryDir {
    /// Creates an empty directory beside `out`, on the same file system.
    pub(crate) fn create(out: &Path) -> Result<TemporaryDir, DaliError> {
        let path = beside(out, "tmp");
        if path.exists() {
            // It has our process id, so it was left by a process that is gone.
            fs::remove_dir_all(&path).map_err(DaliError::io("remove", &path))?;
        }
        fs::create_dir_all(&path).map_err(DaliError::io("create", &path))?;
        Ok(TemporaryDir { path, out: out.to_path_buf(), placed: false })
    }

    /// Its current path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Renames it to `out`; what stands there is moved aside first and removed last, so that one
    /// of the two is there at every moment but the one between two renames.
    pub(crate) fn place(mut self) -> Result<(), DaliError> {
        sync_dir(&self.path)?;
        let retired = beside(&self.out, "old");
        let replaces = self.out.exists();
        if replaces {
            fs::rename(&self.out, &retired).map_err(DaliError::io("rename", &self.out))?;
        }
        if let Err(error) = fs::rename(&self.path, &self.out) {
            if replaces {
                // Best effort: the user must see the error below.
                let _ = fs::rename(&retired, &self.out);
            }
            return Err(DaliError::io("rename a new directory to", &self.out)(error));
        }
        self.placed = true;
        sync_dir(&parent_of(&self.out))?;
        if replaces {
            fs::remove_dir_all(&retired).map_err(DaliError::io("remove", &retired))?;
        }
        Ok(())
    }
}

impl Drop for TemporaryDir {
    fn drop(&mut self) {
        if !self.placed {
            // Nothing to report: the writer failed before, or the program is exiting.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Rejects an `out` that exists, unless it `may_be_replaced` and replacement was requested.
pub(crate) fn check_out(
    out: &Path,
    overwrite: bool,
    may_be_replaced: impl Fn(&Path) -> bool,
) -> Result<(), DaliError> {
    let path = out.to_path_buf();
    if path.file_name().is_none() {
        return Err(DaliError::Option {
            option: "--out",
            got: path.display().to_string(),
            expected: "must end in the name of a directory",
        });
    }
    let is_free = match fs::read_dir(out) {
        Ok(mut entries) => entries.next().is_none(),
        Err(_) => !out.exists(),
    };
    if is_free {
        Ok(())
    } else if !overwrite {
        Err(DaliError::Exists { path })
    } else if may_be_replaced(out) {
        Ok(())
    } else {
        Err(DaliError::NotOurs { path })
    }
}

/// `OUT.<word>-<pid>` beside `OUT`.
fn beside(out: &Path, word: &str) -> PathBuf {
    let mut name = out.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{word}-{}", std::process::id()));
    out.with_file_name(name)
}

fn parent_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

fn sync_dir(dir: &Path) -> Result<(), DaliError> {
    File::open(dir).and_then(|file| file.sync_all()).map_err(DaliError::io("flush", dir))
}
