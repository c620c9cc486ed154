//! Creates a directory atomically: one process at a time writes it under a temporary name, and
//! renames it when it is complete.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::error::DaliError;
use crate::lock::Lock;
use crate::progress::{Progress, Stage};
use crate::unfinished::{Undisturbed, Unfinished};

/// Number of random letters at the end of a temporary name; process ids would not be unique between
/// containers.
const RANDOM_LETTERS: usize = 12;

/// Returns the relative paths of the files that onegraph wrote in a directory; `None` if the
/// directory is not from onegraph.
pub(crate) type Manifest = fn(&Path) -> Option<Vec<PathBuf>>;

/// The lock that gives the exclusive right to create the directory `out`.
#[derive(Debug)]
pub(crate) struct Claim {
    out: PathBuf,
    lock: Lock,
    manifest: Manifest,
}

impl Claim {
    /// Waits for the lock of `out`, then removes files that killed processes left next to `out`.
    /// Reports [`Stage::Waiting`] and [`Stage::TakenOver`].
    pub(crate) fn take(
        out: &Path,
        manifest: Manifest,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Claim, DaliError> {
        let parent = parent_of(out);
        fs::create_dir_all(&parent).map_err(DaliError::io("create", &parent))?;
        let mut report = |stage| progress(Progress { stage, done: 0, total: 0 });
        let path = sibling(out, "lock");
        let lock = Lock::wait(&path, &mut |owner| {
            report(Stage::Waiting { owner: owner.clone(), lock: path.clone() });
        })?;
        if let Some(owner) = lock.replaced() {
            report(Stage::TakenOver { pid: owner.pid });
        }
        sweep(out, manifest)?;
        Ok(Claim { out: out.to_path_buf(), lock, manifest })
    }

    /// Creates an empty directory next to `out`, on the same file system.
    pub(crate) fn begin(self) -> Result<TemporaryDir, DaliError> {
        let parent = parent_of(&self.out);
        let undisturbed = Undisturbed::begin();
        let dir = tempfile::Builder::new()
            .prefix(&sibling(Path::new(self.out.file_name().unwrap_or_default()), "tmp-"))
            .rand_bytes(RANDOM_LETTERS)
            // The permissions of `mkdir`, so that other users of the machine may read a store.
            .permissions(Permissions::from_mode(0o777))
            .tempdir_in(&parent)
            .map_err(DaliError::io("create a directory in", &parent))?;
        let mark = undisturbed.mark(dir.path());
        Ok(TemporaryDir { dir, mark, claim: self })
    }
}

/// A directory that is being written, `.OUT.onegraph-tmp-<random>`; removed when dropped, unless it
/// was renamed to `out`.
#[derive(Debug)]
pub(crate) struct TemporaryDir {
    dir: TempDir,
    mark: Unfinished,
    claim: Claim,
}

impl TemporaryDir {
    /// Its current path.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Renames the directory to `out`. With `overwrite`, an existing directory from onegraph is
    /// moved aside, and removed afterwards.
    pub(crate) fn place(self, overwrite: bool) -> Result<(), DaliError> {
        let TemporaryDir { dir, mark, claim: Claim { out, lock, manifest } } = self;
        sync_dir(dir.path())?;
        check_out(&out, overwrite, manifest)?;
        lock.check()?;
        drop(mark);
        let name = dir.path().file_name().unwrap_or_default().to_string_lossy();
        let retired = out.with_file_name(name.replace(".onegraph-tmp-", ".onegraph-old-"));
        let replaces = out.exists();
        // `out` does not exist between the two renames, so no signal may end the process there.
        let undisturbed = Undisturbed::begin();
        if replaces {
            fs::rename(&out, &retired).map_err(DaliError::io("rename", &out))?;
        }
        if let Err(error) = fs::rename(dir.path(), &out) {
            // Best effort: the error below is more important.
            let _ = fs::rename(&retired, &out);
            return Err(DaliError::io("rename a new directory to", &out)(error));
        }
        drop(undisturbed);
        // The directory has been renamed and must not be removed.
        let _ = dir.keep();
        sync_dir(&parent_of(&out))?;
        if replaces { remove_ours(&retired, manifest) } else { Ok(()) }
    }
}

/// Rejects an existing `out`, unless `overwrite` is set and onegraph wrote all of its files.
pub(crate) fn check_out(out: &Path, overwrite: bool, manifest: Manifest) -> Result<(), DaliError> {
    let path = out.to_path_buf();
    if path.file_name().is_none() {
        return Err(DaliError::Option {
            option: "--out",
            got: path.display().to_string(),
            expected: "must end in the name of a directory",
        });
    }
    let is_link = fs::symlink_metadata(out).is_ok_and(|meta| meta.is_symlink());
    let is_free = match fs::read_dir(out) {
        Ok(mut entries) => entries.next().is_none() && !is_link,
        Err(_) => fs::symlink_metadata(out).is_err(),
    };
    if is_free {
        return Ok(());
    }
    if !overwrite {
        return Err(DaliError::Exists { path });
    }
    if is_link || !out.is_dir() {
        return Err(DaliError::NotOurs { path, stranger: "not a directory".into() });
    }
    match foreign_file(out, manifest) {
        Ok(None) => Ok(()),
        Ok(Some(stranger)) => Err(DaliError::NotOurs { path, stranger }),
        Err(error) => Err(DaliError::io("read", out)(error)),
    }
}

/// The first entry of `dir` that is not in the manifest.
fn foreign_file(dir: &Path, manifest: Manifest) -> io::Result<Option<String>> {
    let files: HashSet<PathBuf> = manifest(dir).unwrap_or_default().into_iter().collect();
    let parents: HashSet<&Path> = files.iter().filter_map(|file| file.parent()).collect();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(dir.join(&folder))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            if entry.file_type()?.is_dir() && parents.contains(&*path) {
                folders.push(path);
            } else if !entry.file_type()?.is_file() || !files.contains(&path) {
                return Ok(Some(path.display().to_string()));
            }
        }
    }
    Ok(None)
}

/// Removes a directory if onegraph wrote all of its files; otherwise keeps it and logs a warning.
fn remove_ours(dir: &Path, manifest: Manifest) -> Result<(), DaliError> {
    if let Some(stranger) = foreign_file(dir, manifest).map_err(DaliError::io("read", dir))? {
        let dir = dir.display();
        tracing::warn!(%dir, "kept: it contains {stranger}, which onegraph did not write");
        return Ok(());
    }
    fs::remove_dir_all(dir).map_err(DaliError::io("remove", dir))
}

/// Removes directories left by killed processes that were creating `out`. The caller holds the
/// lock, so no such process is still running. If the previous `out` was moved aside but not
/// replaced, it is moved back.
fn sweep(out: &Path, manifest: Manifest) -> Result<(), DaliError> {
    let parent = parent_of(out);
    let entries = fs::read_dir(&parent).map_err(DaliError::io("read", &parent))?;
    for entry in entries.flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        if is_temporary(&name, out, "old-") && !out.exists() {
            fs::rename(&path, out).map_err(DaliError::io("move back", &path))?;
        } else if is_temporary(&name, out, "old-") && manifest(&path).is_some() {
            remove_ours(&path, manifest)?;
        } else if is_temporary(&name, out, "old-") || is_temporary(&name, out, "tmp-") {
            tracing::warn!(path = %path.display(), "removing files that a killed process left");
            fs::remove_dir_all(&path).map_err(DaliError::io("remove", &path))?;
        }
    }
    Ok(())
}

/// True if `name` is a temporary name for `out` with this `word`, followed by random letters.
fn is_temporary(name: &std::ffi::OsStr, out: &Path, word: &str) -> bool {
    let start = sibling(Path::new(out.file_name().unwrap_or_default()), word);
    let rest = name.as_encoded_bytes().strip_prefix(start.as_os_str().as_encoded_bytes());
    rest.is_some_and(|rest| {
        rest.len() == RANDOM_LETTERS && rest.iter().all(u8::is_ascii_alphanumeric)
    })
}

/// The path `.OUT.onegraph-<word>` next to `OUT`; no other program uses such names.
fn sibling(out: &Path, word: &str) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(out.file_name().unwrap_or_default());
    name.push(".onegraph-");
    name.push(word);
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
