//! Read-only mapping of one file, and handling of its truncation. This is the crate's only `unsafe`
//! code.
#![allow(unsafe_code)]

use std::fs::File;
use std::path::Path;

use bytemuck::AnyBitPattern;
use memmap2::Mmap;

use crate::error::DaliError;

/// Message for a bus error, which can only be caused by a store: no other files are mapped.
const CUT: &[u8] = b"error: a file of a store was truncated or lost while it was read (SIGBUS); \
    check the disk and run `onegraph prep` again\n";

/// If a different program truncates a mapped file, a read past its end then terminates the process
/// with a one-line message and exit code `code`. To be called by programs only; a library must not
/// handle signals.
///
/// # Errors
/// If the system rejects the signal handler.
pub fn exit_on_bus_errors(code: i32) -> std::io::Result<()> {
    let action = move || {
        // An error of this write cannot be reported.
        let _ = rustix::io::write(rustix::stdio::stderr(), CUT);
        signal_hook::low_level::exit(code);
    };
    // SAFETY: a handler may only do what is safe between any two instructions. This one makes two
    // system calls, `write` and `_exit`: it takes no lock, allocates nothing, and does not return.
    unsafe { signal_hook::low_level::register(signal_hook::consts::SIGBUS, action) }?;
    Ok(())
}

/// The bytes of one file, while this value exists.
#[derive(Debug)]
pub(crate) struct Mapped {
    // An empty file cannot be mapped.
    map: Option<Mmap>,
    file: File,
}

impl Mapped {
    /// Maps the file at `path`.
    ///
    /// # Errors
    /// If the file cannot be opened or mapped.
    pub(crate) fn open(path: &Path) -> Result<Mapped, DaliError> {
        let file = File::open(path).map_err(DaliError::io("open", path))?;
        let bytes = file.metadata().map_err(DaliError::io("read", path))?.len();
        if bytes == 0 {
            return Ok(Mapped { map: None, file });
        }
        // SAFETY: a `&[u8]` into a mapping is sound only while no process changes or shortens the
        // file. The store's files are written under another directory name, made read-only, renamed
        // into place and never opened for writing again; `--overwrite` renames the whole directory
        // away and unlinks its files, which leaves the mapped inodes as they are. The mapping is
        // private and read-only, so this process cannot write through it. We cannot prevent another
        // program from making a file writable and editing it in place. Every bit pattern is valid
        // for the types read from the mapping, and each index in it is checked when the store is
        // opened, and again by the slice that it indexes. Even such an edit can therefore only
        // cause wrong numbers (detected in pixels by the checksum of each image), a panic, or, if
        // the file is shortened, a SIGBUS, which `exit_on_bus_errors` turns into a one-line
        // message.
        let map = unsafe { Mmap::map(&file) }.map_err(DaliError::io("map", path))?;
        Ok(Mapped { map: Some(map), file })
    }

    /// Checks that the mapped file at `path` has not been truncated: reading past its end would
    /// cause a bus error.
    ///
    /// # Errors
    /// [`DaliError::Truncated`] if it was truncated, [`DaliError::Io`] if its length cannot be
    /// read.
    pub(crate) fn check_length(&self, path: &Path) -> Result<(), DaliError> {
        let (had, has) = (self.bytes().len(), self.file.metadata());
        let has = has.map_err(DaliError::io("read the length of", path))?.len();
        if has < had as u64 {
            return Err(DaliError::Truncated { path: path.to_path_buf(), had, has });
        }
        Ok(())
    }

    /// All bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.map.as_deref().unwrap_or(&[])
    }

    /// All bytes as records; `None` if the length is not a multiple of the record size.
    pub(crate) fn records<T: AnyBitPattern>(&self) -> Option<&[T]> {
        match &self.map {
            // An empty slice of bytes might not be aligned for records.
            None => Some(&[]),
            Some(map) => bytemuck::try_cast_slice(map).ok(),
        }
    }
}
