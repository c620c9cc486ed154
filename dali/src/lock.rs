//! A lock on a folder that is being written: `flock` on a small file that contains the owner.
//!
//! The kernel releases the lock when the owner ends, for any reason. On a shared file system
//! `flock` may be limited to each host, or unsupported. Therefore a lock file whose owner is on a
//! different host counts as held; if that process has ended, a message asks the user to remove the
//! file.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::error::DaliError;
use crate::owner::Owner;
use crate::unfinished::{Undisturbed, Unfinished};

/// Maximum length of a lock file that is read, more than any owner writes.
const MAX_BYTES: u64 = 1 << 16;
/// Time between two attempts while waiting.
const POLL: Duration = Duration::from_millis(100);

/// A lock that this process holds until it is dropped.
#[derive(Debug)]
pub struct Lock {
    held: Mutex<Held>,
    replaced: Option<Owner>,
}

/// The file of a lock.
#[derive(Debug)]
struct Held {
    path: PathBuf,
    file: File,
    /// Removes the file if a signal ends the process.
    _mark: Unfinished,
}

impl Lock {
    /// Acquires the lock whose file is `path`; the file's folder must exist.
    ///
    /// # Errors
    /// [`DaliError::Locked`] with the owner, if the lock is held; [`DaliError::Io`].
    pub fn take(path: &Path) -> Result<Lock, DaliError> {
        attempt(path)?.map_err(|owner| DaliError::Locked { path: path.to_path_buf(), owner })
    }

    /// Acquires the lock as soon as its owner releases it or ends; `on_wait` is called before each
    /// pause, ten times a second.
    ///
    /// # Errors
    /// [`DaliError::Io`].
    pub fn wait(path: &Path, on_wait: &mut dyn FnMut(&Owner)) -> Result<Lock, DaliError> {
        loop {
            match attempt(path)? {
                Ok(lock) => return Ok(lock),
                Err(owner) => on_wait(&owner),
            }
            std::thread::sleep(POLL);
        }
    }

    /// The owner of the lock at `path`; `None` if the lock is free or does not exist. Writes
    /// nothing; a free lock is held for the duration of the query.
    ///
    /// # Errors
    /// [`DaliError::Io`]; [`DaliError::NotALock`].
    pub fn owner(path: &Path) -> Result<Option<Owner>, DaliError> {
        let file = match File::open(path) {
            Err(fault) if fault.kind() == ErrorKind::NotFound => return Ok(None),
            file => file.map_err(DaliError::io("open the lock", path))?,
        };
        let here = Owner::current();
        let owner = read_owner(&file, path)?;
        match (owner, file.try_lock_shared()) {
            (Some(owner), Ok(())) => Ok(owner.is_far_from(&here).then_some(owner)),
            (None, Ok(())) => Ok(None),
            (owner, Err(_)) => Ok(Some(owner.unwrap_or(Owner { pid: 0, ..here }))),
        }
    }

    /// The previous owner, if it ended without releasing the lock.
    pub fn replaced(&self) -> Option<&Owner> {
        self.replaced.as_ref()
    }

    /// Checks that this process still holds the lock. If the lock file was removed, the lock is
    /// acquired again.
    ///
    /// # Errors
    /// [`DaliError::Locked`] if a different process has acquired the lock.
    pub fn check(&self) -> Result<(), DaliError> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_at(&held.file, &held.path) {
            tracing::warn!(path = %held.path.display(), "the lock was removed; taking it again");
            let again = Lock::take(&held.path)?;
            *held = again.held.into_inner().unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if is_at(&self.file, &self.path) {
            // The file is removed while the lock is held. A process that opened the file earlier
            // then detects the removal.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Acquires the lock, or returns its owner.
fn attempt(path: &Path) -> Result<Result<Lock, Owner>, DaliError> {
    loop {
        let undisturbed = Undisturbed::begin();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        // A symbolic link is not followed, as it could lead to a file of a different program.
        options.custom_flags(OFlags::NOFOLLOW.bits() as i32);
        let file = options.open(path).map_err(DaliError::io("open the lock", path))?;
        let locked = file.try_lock();
        if !is_at(&file, path) {
            continue;
        }
        let here = Owner::current();
        let owner = read_owner(&file, path)?;
        let may_be_gone = match locked {
            Ok(()) => owner.as_ref().is_some_and(|owner| owner.is_far_from(&here)),
            Err(TryLockError::WouldBlock) => {
                return Ok(Err(owner.unwrap_or(Owner { pid: 0, ..here })));
            }
            Err(TryLockError::Error(error)) if lacks_locks(&error) => true,
            Err(TryLockError::Error(error)) => return Err(DaliError::io("lock", path)(error)),
        };
        if may_be_gone && let Some(owner) = owner {
            return Ok(Err(Owner { may_be_gone, ..owner }));
        }
        if let Some(owner) = &owner {
            tracing::warn!(path = %path.display(), %owner, "its owner has ended; taking it over");
        }
        let text = serde_json::to_vec(&here).map_err(io::Error::from);
        text.and_then(|text| file.set_len(0).and_then(|()| file.write_all_at(&text, 0)))
            .map_err(DaliError::io("write the lock", path))?;
        let _mark = undisturbed.mark(path);
        let held = Mutex::new(Held { path: path.to_path_buf(), file, _mark });
        return Ok(Ok(Lock { held, replaced: owner }));
    }
}

/// The owner that is stored in the file; `None` if the file is empty.
fn read_owner(file: &File, path: &Path) -> Result<Option<Owner>, DaliError> {
    let mut text = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut text).map_err(DaliError::io("read the lock", path))?;
    match text.is_empty() {
        true => Ok(None),
        false => serde_json::from_slice(&text)
            .map_err(|_| DaliError::NotALock { path: path.to_path_buf() }),
    }
}

/// True if `path` still refers to the open file.
fn is_at(file: &File, path: &Path) -> bool {
    let id = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
    let at_path = std::fs::metadata(path).map(id).ok();
    at_path.is_some() && at_path == file.metadata().map(id).ok()
}

fn lacks_locks(error: &io::Error) -> bool {
    let of = Errno::from_io_error(error);
    error.kind() == ErrorKind::Unsupported
        || [Errno::NOLCK, Errno::NOSYS, Errno::OPNOTSUPP].map(Some).contains(&of)
}
