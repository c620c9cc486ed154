//! A lock on a folder being written: it dies with its process, and across hosts with its heartbeat.
//!
//! The lock is a small file. Its owner holds `flock` on it, which the kernel releases however the
//! process ends, and writes itself into it every few seconds. A file system shared by hosts may
//! keep `flock` to each host, or keep it for a host that is gone; there the heartbeat decides.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::error::DaliError;
use crate::owner::Owner;
use crate::unfinished::{Undisturbed, Unfinished};

/// Time between two heartbeats.
const BEAT: Duration = Duration::from_secs(10);
/// The owner on another host counts as gone after this long without a heartbeat.
const DEAD_AFTER: Duration = Duration::from_secs(60);
/// More than any owner writes.
const MAX_BYTES: u64 = 1 << 16;
/// Time between two attempts while waiting.
const POLL: Duration = Duration::from_millis(100);

/// A lock that this process holds until it is dropped.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
    held: Mutex<Held>,
    replaced: Option<Owner>,
}

/// The file of a lock, with its heartbeat.
#[derive(Debug)]
struct Held {
    path: PathBuf,
    file: Arc<File>,
    is_lost: Arc<AtomicBool>,
    heart: Option<(Sender<()>, JoinHandle<()>)>,
    /// A process that a signal ends removes the file.
    _mark: Unfinished,
}

/// One attempt to take a lock.
enum Attempt {
    /// With the owner it was taken over from.
    Taken(Held, Option<Owner>),
    Held(Owner),
    /// The file was removed or replaced meanwhile: try again.
    Gone,
}

impl Lock {
    /// Takes the lock whose file is `path`; the file's folder must exist.
    ///
    /// # Errors
    /// [`DaliError::Locked`] names the owner that lives; [`DaliError::Io`].
    pub fn take(path: &Path) -> Result<Lock, DaliError> {
        loop {
            match attempt(path)? {
                Attempt::Taken(held, replaced) => return Ok(Self::new(path, held, replaced)),
                Attempt::Held(owner) => {
                    return Err(DaliError::Locked { path: path.to_path_buf(), owner });
                }
                Attempt::Gone => {}
            }
        }
    }

    /// Takes the lock as soon as its owner releases it or dies; `on_wait` is called before each
    /// pause, ten times a second. Also returns the owner it waited for first, if any.
    ///
    /// # Errors
    /// [`DaliError::Io`], and what `on_wait` returns to give up.
    pub fn wait(
        path: &Path,
        on_wait: &mut dyn FnMut(&Owner) -> Result<(), DaliError>,
    ) -> Result<(Lock, Option<Owner>), DaliError> {
        let mut first = None;
        loop {
            match attempt(path)? {
                Attempt::Taken(held, replaced) => {
                    return Ok((Self::new(path, held, replaced), first));
                }
                Attempt::Held(owner) => {
                    on_wait(&owner)?;
                    first.get_or_insert(owner);
                    std::thread::sleep(POLL);
                }
                Attempt::Gone => {}
            }
        }
    }

    fn new(path: &Path, held: Held, replaced: Option<Owner>) -> Self {
        Self { path: path.to_path_buf(), held: Mutex::new(held), replaced }
    }

    /// The owner that this lock was taken over from, because it was gone without releasing it.
    pub fn replaced(&self) -> Option<&Owner> {
        self.replaced.as_ref()
    }

    /// Whether the lock is still this process's; another host takes it over from a process that
    /// was stopped for a minute. One whose file somebody removed is taken again.
    ///
    /// # Errors
    /// [`DaliError::Locked`] naming the new owner.
    pub fn check(&self) -> Result<(), DaliError> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if !held.is_lost.load(Ordering::Relaxed) && is_at(&held.file, &self.path) {
            return Ok(());
        }
        if !self.path.exists() {
            tracing::warn!(path = %self.path.display(), "the lock was removed; taking it again");
            while !self.path.exists() {
                if let Attempt::Taken(again, _) = attempt(&self.path)? {
                    *held = again;
                    return Ok(());
                }
            }
        }
        let owner = File::open(&self.path).ok().and_then(|mut file| read_owner(&mut file));
        let owner = owner.and_then(Result::ok).unwrap_or_else(Owner::unknown);
        Err(DaliError::Locked { path: self.path.clone(), owner })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.heart.take() {
            drop(stop);
            // A panic in it has been printed already; panicking again in a drop would abort.
            let _ = thread.join();
        }
        if is_at(&self.file, &self.path) {
            // Removed while still held: whoever opened it before finds that it is gone.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn attempt(path: &Path) -> Result<Attempt, DaliError> {
    let undisturbed = Undisturbed::begin();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    // A link could lead to a file that is not ours.
    options.custom_flags(OFlags::NOFOLLOW.bits() as i32);
    let mut file = options.open(path).map_err(DaliError::io("open the lock", path))?;
    // `None`: this file system knows no locks, so only the heartbeat can say.
    let ours = match file.try_lock() {
        Ok(()) => Some(true),
        Err(TryLockError::WouldBlock) => Some(false),
        Err(TryLockError::Error(error)) if knows_no_locks(&error) => None,
        Err(TryLockError::Error(error)) => return Err(DaliError::io("lock", path)(error)),
    };
    if !is_at(&file, path) {
        return Ok(Attempt::Gone);
    }
    let here = Owner::current();
    let owner = match read_owner(&mut file) {
        Some(Err(_)) => return Err(DaliError::NotALock { path: path.to_path_buf() }),
        Some(Ok(owner)) => Some(owner),
        None => None,
    };
    let shares_kernel = owner.as_ref().is_none_or(|owner| owner.kernel == here.kernel);
    let lives = match (ours, &owner) {
        (Some(true), _) if shares_kernel => false,
        (Some(false), _) if shares_kernel => true,
        (_, None) => false,
        (_, Some(_)) => age(&file, path)? < DEAD_AFTER,
    };
    if lives {
        return Ok(Attempt::Held(owner.unwrap_or_else(Owner::unknown)));
    }
    if let Some(owner) = &owner {
        tracing::warn!(path = %path.display(), %owner, "taking over the lock of a process gone");
    }
    if ours == Some(false) {
        // A dead host still holds this file, so the lock moves to a new one.
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(DaliError::io("remove the lock", path)(error));
            }
            _ => return Ok(Attempt::Gone),
        }
    }
    let held = hold(path, file, here, undisturbed)?;
    Ok(Attempt::Taken(held, owner))
}

/// Writes the new owner into the file and starts its heartbeat.
fn hold(
    path: &Path,
    file: File,
    owner: Owner,
    undisturbed: Undisturbed,
) -> Result<Held, DaliError> {
    let write = |file: &File| -> io::Result<Vec<u8>> {
        let text = serde_json::to_vec(&owner)?;
        file.set_len(0)?;
        file.write_all_at(&text, 0)?;
        Ok(text)
    };
    let text = write(&file).map_err(DaliError::io("write the lock", path))?;
    let (file, is_lost) = (Arc::new(file), Arc::new(AtomicBool::new(false)));
    let (stop, stopped) = channel::<()>();
    let beat = {
        let (file, is_lost, path) = (file.clone(), is_lost.clone(), path.to_path_buf());
        move || {
            while stopped.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
                if !is_at(&file, &path) {
                    is_lost.store(true, Ordering::Relaxed);
                    tracing::error!(path = %path.display(), "another process took the lock over");
                    return;
                }
                // A beat that cannot be written is one that is missed; there are five more.
                let _ = file.write_all_at(&text, 0).and_then(|()| file.sync_data());
            }
        }
    };
    let thread = std::thread::Builder::new()
        .name("lock".to_string())
        .spawn(beat)
        .map_err(DaliError::io("start the heartbeat of the lock", path))?;
    let heart = Some((stop, thread));
    let _mark = undisturbed.mark(path);
    Ok(Held { path: path.to_path_buf(), file, is_lost, heart, _mark })
}

/// The owner written in the file; `None` if nothing is, an error for what no owner writes.
fn read_owner(file: &mut File) -> Option<Result<Owner, serde_json::Error>> {
    let mut text = Vec::new();
    let limited = file.rewind().and_then(|()| file.take(MAX_BYTES).read_to_end(&mut text));
    limited.ok()?;
    (!text.is_empty()).then(|| serde_json::from_slice(&text))
}

/// Time since the last heartbeat, by the clock of the file system that both hosts share.
fn age(file: &File, path: &Path) -> Result<Duration, DaliError> {
    let parent = path.parent().unwrap_or(Path::new("."));
    let ages = || -> io::Result<Duration> {
        let now = tempfile::Builder::new().prefix(".clock-").tempfile_in(parent)?;
        let (now, then) = (now.as_file().metadata()?.modified()?, file.metadata()?.modified()?);
        Ok(now.duration_since(then).unwrap_or_default())
    };
    ages().map_err(DaliError::io("read the time of the lock", path))
}

/// Whether `path` still names the open file.
fn is_at(file: &File, path: &Path) -> bool {
    let id = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
    let at_path = std::fs::metadata(path).map(id).ok();
    at_path.is_some() && at_path == file.metadata().map(id).ok()
}

fn knows_no_locks(error: &io::Error) -> bool {
    let of = Errno::from_io_error(error);
    error.kind() == ErrorKind::Unsupported
        || [Errno::NOLCK, Errno::NOSYS, Errno::OPNOTSUPP].map(Some).contains(&of)
}
