//! Append-only files of complete records.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::EngineError;
use crate::run_dir::io;

/// An append-only file: a record that does not fit on the disk is removed completely.
#[derive(Debug)]
pub(crate) struct AppendFile {
    file: File,
    path: PathBuf,
    /// Bytes of complete records.
    whole_bytes: u64,
}

impl AppendFile {
    /// Opens the file at `path` for appending, and creates it if missing.
    ///
    /// # Errors
    /// [`EngineError::Io`] names the file.
    pub(crate) fn open(path: &Path) -> Result<Self, EngineError> {
        let file = OpenOptions::new().create(true).append(true).open(path).map_err(io(path))?;
        let whole_bytes = file.metadata().map_err(io(path))?.len();
        Ok(Self { file, path: path.to_path_buf(), whole_bytes })
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a record.
    ///
    /// # Errors
    /// [`EngineError::Io`] names the file, which is then as it was before.
    pub(crate) fn append(&mut self, record: &[u8]) -> Result<(), EngineError> {
        if let Err(fault) = self.file.write_all(record) {
            // The error that stopped the write is more useful than an error here.
            let _ = self.file.set_len(self.whole_bytes);
            return Err(io(&self.path)(fault));
        }
        self.whole_bytes += record.len() as u64;
        Ok(())
    }
}
