//! Read-only mapping of one file: the crate's only `unsafe` code.
#![allow(unsafe_code)]

use std::fs::File;
use std::path::Path;

use bytemuck::AnyBitPattern;
use memmap2::Mmap;

use crate::error::DaliError;

/// The bytes of one file, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Mapped {
    // An empty file cannot be mapped.
    map: Option<Mmap>,
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
            return Ok(Mapped { map: None });
        }
        // SAFETY: a `&[u8]` into a mapping is sound only while nobody changes or shortens the
        // file. The store's files are written under another directory name, made read-only,
        // renamed into place and never opened for writing again; `--overwrite` renames the whole
        // directory away and unlinks its files, which leaves the mapped inodes as they are. The
        // mapping is private and read-only, so this process cannot write through it. What stays
        // outside our reach is another program that makes a file writable and edits it in place.
        // Every bit pattern is valid for the types read from the mapping, and each index that
        // comes out of it is checked at the store's opening and again by the slice it indexes,
        // so even such an edit can only give wrong numbers, a panic, or SIGBUS if it shortens.
        let map = unsafe { Mmap::map(&file) }.map_err(DaliError::io("map", path))?;
        Ok(Mapped { map: Some(map) })
    }

    /// All bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.map.as_deref().unwrap_or(&[])
    }

    /// All bytes as records; `None` if the length is not a multiple of the record's.
    pub(crate) fn records<T: AnyBitPattern>(&self) -> Option<&[T]> {
        match &self.map {
            // The empty slice of bytes need not be aligned for records.
            None => Some(&[]),
            Some(map) => bytemuck::try_cast_slice(map).ok(),
        }
    }
}
