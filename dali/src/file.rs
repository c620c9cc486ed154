//! Single files: only regular files are read, and files are written atomically.

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::unfinished::{Undisturbed, Unfinished};

/// Suffix of a temporary name, after a dot and 16 hexadecimal digits.
const TEMPORARY: &str = ".partial";

/// The metadata of a regular file.
///
/// # Errors
/// Any other kind of file: reading a pipe would block, and a device may be endless.
pub fn regular(path: &Path) -> io::Result<Metadata> {
    match fs::metadata(path) {
        Ok(meta) if meta.is_file() => Ok(meta),
        Ok(_) => Err(io::Error::other("it is not a regular file")),
        Err(fault) => Err(match fs::read_link(path) {
            Ok(to) => io::Error::new(fault.kind(), format!("it is a link to {to:?}: {fault}")),
            Err(_) => fault,
        }),
    }
}

/// The bytes of a regular file.
///
/// # Errors
/// As for [`regular`], or if the file cannot be read.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    regular(path).and_then(|_| fs::read(path))
}

/// Writes the output of `fill` to `path`. A regular file is replaced atomically: a reader sees
/// either the old or the new contents. A symbolic link is kept, and its target is replaced. A pipe,
/// a device or standard output is written to directly.
///
/// # Errors
/// If `path` is a directory, or any I/O error; a regular file is then unchanged.
pub fn write(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    match Target::of(path)? {
        Target::Open(file) => filled(file, fill).map(drop),
        Target::Named(path) => replace(&path, fill),
    }
}

/// The destination of a write.
enum Target {
    /// An open file to write to directly.
    Open(File),
    /// Path of a regular file, which may not exist yet; the path is not a link.
    Named(PathBuf),
}

impl Target {
    fn of(path: &Path) -> io::Result<Self> {
        let meta = match fs::metadata(path) {
            Err(fault) if fault.kind() == ErrorKind::NotFound => {
                return Ok(Self::Named(end_of_links(path)));
            }
            meta => meta?,
        };
        if meta.is_dir() {
            return Err(io::Error::other("it is a directory; name a file"));
        }
        // If the path is standard output, its handle is reused: redirected output must keep its
        // position in the file, and a socket has no name to open.
        if let Ok(open) = io::stdout().as_fd().try_clone_to_owned().map(File::from)
            && open.metadata().is_ok_and(|own| (own.dev(), own.ino()) == (meta.dev(), meta.ino()))
        {
            io::stdout().flush()?;
            return Ok(Self::Open(open));
        }
        match meta.is_file() {
            true => path.canonicalize().map(Self::Named),
            false => File::options().write(true).open(path).map(Self::Open),
        }
    }
}

/// Follows a chain of symbolic links, also to a file that does not exist yet.
fn end_of_links(path: &Path) -> PathBuf {
    let mut path = path.to_path_buf();
    while let Ok(to) = fs::read_link(&path) {
        path = path.with_file_name("").join(to);
    }
    path
}

fn replace(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    sweep_once(folder);
    let (file, beside, mark) = begin(folder)?;
    // The file stays open, and thus locked, until it is renamed.
    let written = filled(file, fill).and_then(|file| file.sync_all().map(|()| file));
    drop(mark);
    let replaced = written.and_then(|_open| fs::rename(&beside, path));
    if replaced.is_err() {
        // An error here is ignored: the error of the write is more useful.
        let _ = fs::remove_file(&beside);
        return replaced;
    }
    // After the sync a power failure cannot undo the rename. Some file systems cannot sync a
    // folder, so errors are ignored.
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}

/// Creates a temporary file in the folder, locked to show that this process is alive; returns the
/// file, its path, and its [`Unfinished`] mark.
fn begin(folder: &Path) -> io::Result<(File, PathBuf, Unfinished)> {
    loop {
        // A process id would not be unique: processes in different containers may have the same id.
        let random = RandomState::new().build_hasher().finish();
        let beside = folder.join(format!(".{random:016x}{TEMPORARY}"));
        let undisturbed = Undisturbed::begin();
        let file = File::create_new(&beside)?;
        let mark = undisturbed.mark(&beside);
        // A `sweep` by a different process may hold the lock, or may have removed the file. On a
        // file system without locks, `sweep` removes nothing.
        let is_taken = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
        if !is_taken && beside.exists() {
            return Ok((file, beside, mark));
        }
    }
}

/// Calls [`sweep`] the first time that this process writes into the folder.
fn sweep_once(folder: &Path) {
    static SWEPT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    if SWEPT.lock().unwrap_or_else(PoisonError::into_inner).insert(folder.to_path_buf()) {
        sweep(folder);
    }
}

/// Removes temporary files that killed processes left in a folder during [`write()`].
pub fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let name = name.strip_suffix(".removed").unwrap_or(&name);
        let random = name.strip_prefix('.').and_then(|name| name.strip_suffix(TEMPORARY));
        let is_hex = |c: char| matches!(c, '0'..='9' | 'a'..='f');
        let is_ours = random.is_some_and(|random| random.len() == 16 && random.chars().all(is_hex))
            && entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_ours
            && let Ok(file) = File::options().write(true).open(entry.path())
            && file.try_lock().is_ok()
        {
            // Errors are ignored: a remaining file only takes space.
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn filled(file: File, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<File> {
    let mut out = BufWriter::new(file);
    fill(&mut out)?;
    out.into_inner().map_err(io::IntoInnerError::into_error)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    fn put(path: &Path, text: &str) -> io::Result<()> {
        write(path, |out| out.write_all(text.as_bytes()))
    }

    #[test]
    fn write_through_symlink_replaces_or_creates_target() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("inner")).expect("a folder");
        fs::write(at("inner/old"), "old").expect("a file");
        // The second link points to the first, which points to a file that may not exist.
        for (to, links) in [("inner/old", ["a", "b"]), ("inner/none", ["c", "d"])] {
            symlink(to, at(links[0])).expect("a link");
            symlink(links[0], at(links[1])).expect("a link");
            let held = File::open(at(to));
            put(&at(links[1]), "new").expect("written");
            assert!(links.iter().all(|link| at(link).is_symlink()));
            assert_eq!(fs::read(at(to)).expect("a file"), b"new");
            // A reader that opened the old file still reads the old text: the file was replaced,
            // not truncated.
            let old = held.map(|file| io::read_to_string(file).expect("text"));
            assert!(old.is_ok_and(|old| old == "old") == (to == "inner/old"));
        }
        let names = |name: &str| fs::read_dir(at(name)).expect("a folder").count();
        assert_eq!((names("inner"), names(".")), (2, 5), "nothing else is left");
    }

    #[test]
    fn special_file_is_written_in_place_and_never_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let (pipe, null) = (folder.path().join("pipe"), folder.path().join("null"));
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
        symlink("/dev/null", &null).expect("a link");
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read_to_string(pipe).expect("text")
        });
        put(&pipe, "through").expect("written");
        assert_eq!(reader.join().expect("no panic"), "through");
        put(&null, "nowhere").expect("written");
        assert!(null.is_symlink() && regular(&null).is_err());
        for odd in [&pipe, &null, Path::new("/dev/zero"), folder.path()] {
            let refused = read(odd).expect_err("not a file").to_string();
            assert!(refused.contains("not a regular file"), "{refused}");
        }
        let refused = put(folder.path(), "text").expect_err("a directory").to_string();
        assert!(refused.contains("is a directory"), "{refused}");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2);
    }

    #[test]
    fn sweep_removes_only_temporary_files_of_dead_processes() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let dead = [".0123456789abcdef.partial", ".00000000000000ff.partial.removed"];
        let held = ".fedcba9876543210.partial";
        let foreign = ["0123456789abcdef.partial", ".0123456789abcdeg.partial", ".a.partial"];
        for name in dead.iter().chain(&foreign).chain([&held]) {
            fs::write(at(name), "x").expect("a file");
        }
        let open = File::open(at(held)).expect("a file");
        open.try_lock().expect("free");
        put(&at("new"), "new").expect("written");
        assert!(dead.iter().all(|name| !at(name).exists()));
        assert!(foreign.iter().chain([&held, &"new"]).all(|name| at(name).exists()));
    }
}
