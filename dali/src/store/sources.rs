//! A store beside the image files that it was made from.

use std::path::Path;

use rayon::prelude::*;

use super::Store;
use super::format::SourceRow;
use crate::decode::{self, DecodeFault};
use crate::error::DaliError;

impl Store {
    /// The first image whose file in the directory `images` has another size or time than when it
    /// was stored. `None` too if the directory is gone, or the store is of version 1.
    pub fn changed_source(&self, images: &Path) -> Option<&str> {
        let sources = self.source_rows()?;
        if !images.is_dir() {
            return None;
        }
        let is_changed = |&idx: &usize| {
            let now = std::fs::metadata(images.join(self.file_name(idx)));
            now.map(|meta| SourceRow::of(&meta)).ok() != sources.get(idx).copied()
        };
        let changed = (0..self.len()).into_par_iter().find_first(is_changed);
        changed.map(|idx| self.file_name(idx))
    }

    /// Every image whose file in the directory `images` is missing or has other pixels than were
    /// stored. Reads and decodes all of both.
    pub fn source_faults(&self, images: &Path) -> Vec<DaliError> {
        let fault_of = |idx: usize| {
            let file = images.join(self.file_name(idx));
            let fault = match self.has_pixels_of(idx, &file) {
                Ok(true) => return None,
                Ok(false) => "has other pixels than were stored".to_string(),
                Err(fault) => fault,
            };
            Some(DaliError::Source { path: self.path().to_path_buf(), file, fault })
        };
        (0..self.len()).into_par_iter().filter_map(fault_of).collect()
    }

    /// Whether image `idx` has the pixels of `file`.
    fn has_pixels_of(&self, idx: usize, file: &Path) -> Result<bool, String> {
        if std::fs::metadata(file).is_ok_and(|meta| !meta.is_file()) {
            return Err("is not a regular file".into());
        }
        let bytes = std::fs::read(file).map_err(|e| format!("cannot be read: {e}"))?;
        let said = |fault: DecodeFault| fault.to_string();
        let info = decode::probe(&bytes).map_err(said)?;
        let record = self.image(idx);
        if (info.height, info.width) != (record.height, record.width) {
            return Ok(false);
        }
        let mut stored = Vec::new();
        self.decode_rgb(idx, &mut stored)
            .map_err(|fault| format!("cannot be compared: {fault}"))?;
        let mut read = vec![0; stored.len()];
        decode::decode_rgb_into(&bytes, &mut read).map_err(said)?;
        Ok(read == stored)
    }
}
