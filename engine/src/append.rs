//! Append-only files that contain only complete records.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::EngineError;
use crate::run_dir::io;

/// An append-only file. If a write fails, the partly written record is removed.
#[derive(Debug)]
pub(crate) struct AppendFile {
    file: File,
    path: PathBuf,
    /// Length of all complete records, in bytes.
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
    /// [`EngineError::Io`] names the file, whose contents are then unchanged.
    pub(crate) fn append(&mut self, record: &[u8]) -> Result<(), EngineError> {
        if let Err(fault) = self.file.write_all(record) {
            // A second error is ignored: the caller gets the one that stopped the write.
            let _ = self.file.set_len(self.whole_bytes);
            return Err(io(&self.path)(fault));
        }
        self.whole_bytes += record.len() as u64;
        Ok(())
    }
}
