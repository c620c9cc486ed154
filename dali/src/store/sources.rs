//! Compares a store with the image files that it was built from.

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;

use rayon::prelude::*;

use super::Store;
use super::format::SourceRow;
use crate::decode::{self, DecodeFault};
use crate::error::DaliError;

/// An image file that changed after it was stored; its `Display` is a message for the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceChange<'a> {
    /// The size or time of the file with this name has changed.
    Replaced(&'a str),
    /// The file with this name no longer exists.
    Removed(&'a str),
}

impl fmt::Display for SourceChange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SourceChange::Replaced(name) => write!(f, "{name} was replaced"),
            SourceChange::Removed(name) => write!(f, "{name} was removed"),
        }
    }
}

impl Store {
    /// The first image whose file in the directory `images` no longer exists, or has a different
    /// size or time than when it was stored; `None` if there is none, or if the directory does not
    /// exist.
    pub fn changed_source(&self, images: &Path) -> Option<SourceChange<'_>> {
        let sources = self.source_rows();
        if !images.is_dir() {
            return None;
        }
        let change_of = |idx: usize| match std::fs::metadata(images.join(self.file_name(idx))) {
            Ok(now) if sources.get(idx) == Some(&SourceRow::of(&now)) => None,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Some(SourceChange::Removed(self.file_name(idx)))
            }
            _ => Some(SourceChange::Replaced(self.file_name(idx))),
        };
        (0..self.len()).into_par_iter().find_map_first(change_of)
    }

    /// All images whose file in the directory `images` is missing, or has different pixels than the
    /// store. Reads and decodes the files and the store.
    pub fn source_faults(&self, images: &Path) -> Vec<DaliError> {
        let fault_of = |idx: usize| {
            let file = images.join(self.file_name(idx));
            let fault = match self.has_pixels_of(idx, &file) {
                Ok(true) => return None,
                Ok(false) => "has different pixels than the store".to_string(),
                Err(fault) => fault,
            };
            Some(DaliError::Source { path: self.path().to_path_buf(), file, fault })
        };
        (0..self.len()).into_par_iter().filter_map(fault_of).collect()
    }

    /// True if the stored image `idx` has the pixels of `file`.
    fn has_pixels_of(&self, idx: usize, file: &Path) -> Result<bool, String> {
        let bytes = crate::file::read(file).map_err(|e| format!("cannot be read: {e}"))?;
        let said = |fault: DecodeFault| fault.to_string();
        let info = decode::probe(&bytes).map_err(said)?;
        let record = self.image(idx);
        let mut stored = Vec::new();
        self.decode_rgb(idx, &mut stored)
            .map_err(|fault| format!("cannot be compared: {fault}"))?;
        let size = [info.height, info.width];
        let mut read = vec![0; 3 * info.height as usize * info.width as usize];
        decode::decode_rgb_into(&bytes, &mut read).map_err(said)?;
        // If the store does not record how EXIF rotations were treated, the pixels are compared
        // with and without rotation.
        let turn = info.exif_orientation;
        let turned = turn.filter(|_| self.header().num_unturned == 0);
        let stays = turn.is_none() || self.header().num_turned == 0;
        let has = |turn, pixels: &[u8]| {
            decode::turned_size(size, turn) == [record.height, record.width] && pixels == stored
        };
        Ok((stays && has(None, &read))
            || turned.is_some_and(|by| has(turned, &decode::turned(read, size, by))))
    }
}
