//! The source key of a store: stores with equal keys have the same data.

use std::fmt;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::options::PrepOptions;
use crate::coco::Dataset;
use crate::decode::Exif;
use crate::error::DaliError;

/// The quoted name of the field `keypoints` in an annotation file.
const KEYPOINTS: &[u8] = b"\"keypoints\"";

/// SHA-256, in hexadecimal, of the paths, the contents of the annotation file, and the options that
/// determine the stored data. Reads the complete annotation file; any change to it changes the key.
///
/// # Errors
/// [`DaliError::Io`] if the annotation file does not exist or cannot be read.
pub fn source_key(options: &PrepOptions) -> Result<String, DaliError> {
    let path = &options.annotations;
    let annotations = crate::file::read(path);
    Ok(key_of_bytes(options, &annotations.map_err(DaliError::io("read the annotations", path))?))
}

/// The key for `options` and an annotation file with these bytes. The key of a file with keypoints
/// differs from the key in versions without keypoint support, so that stores of such versions do
/// not match.
pub(super) fn key_of_bytes(options: &PrepOptions, annotations: &[u8]) -> String {
    let mut content = hex::encode(Sha256::digest(annotations));
    if annotations.windows(KEYPOINTS.len()).any(|window| window == KEYPOINTS) {
        content += " keypoints";
    }
    key_of(options, &content)
}

/// The key for `options` and a data set that was read from a format other than COCO; it depends on
/// every value of the data set.
pub(super) fn key_of_dataset(options: &PrepOptions, dataset: &Dataset) -> String {
    struct Sum(Sha256);
    impl fmt::Write for Sum {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.update(text);
            Ok(())
        }
    }
    let mut sum = Sum(Sha256::new());
    // Writing into a hash does not fail.
    let _ = fmt::write(&mut sum, format_args!("{dataset:?}"));
    key_of(options, &hex::encode(sum.0.finalize()))
}

fn key_of(options: &PrepOptions, content: &str) -> String {
    let full = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let PrepOptions {
        images,
        annotations,
        empty,
        pixels,
        skip_bad_images,
        masks,
        exif,
        columns,
        ..
    } = options;
    // With the default option the text is the same as in versions without the option, so that their
    // stores match.
    let turn = if *exif == Exif::Apply { " turned" } else { "" };
    // Without columns the text is the same as in versions without support for columns.
    let columns = if columns.is_empty() { String::new() } else { format!(" {columns:?}") };
    let key = format!(
        "{:?} {:?} {content} {empty:?} {pixels:?} {skip_bad_images} {masks:?}{turn}{columns}",
        full(images),
        full(annotations),
    );
    hex::encode(Sha256::digest(key.as_bytes()))
}
