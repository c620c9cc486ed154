//! What a store is made from, as a key: two stores of one key hold the same data.

use std::path::Path;
use std::time::UNIX_EPOCH;

use sha2::{Digest, Sha256};

use super::options::PrepOptions;
use crate::error::DaliError;

/// SHA-256, in hexadecimal, of the paths, of size and time of the annotation file, and of the
/// options that decide what is stored. An edited annotation file counts as a new one.
///
/// # Errors
/// [`DaliError::Io`] if the annotation file cannot be read.
pub fn source_key(options: &PrepOptions) -> Result<String, DaliError> {
    let annotations = &options.annotations;
    let meta = std::fs::metadata(annotations)
        .map_err(DaliError::io("read the annotations", annotations))?;
    let changed = meta.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let full = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let PrepOptions { empty, pixels, skip_bad_images, masks, .. } = options;
    let key = format!(
        "{:?} {:?} {} {changed:?} {empty:?} {pixels:?} {skip_bad_images} {masks:?}",
        full(&options.images),
        full(annotations),
        meta.len(),
    );
    Ok(Sha256::digest(key.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect())
}
