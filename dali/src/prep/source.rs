//! The sources of a store as a key: two stores of one key hold the same data.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::options::PrepOptions;
use crate::coco::Dataset;
use crate::decode::Exif;
use crate::error::DaliError;

/// The key of a list of keypoints in an annotation file.
const KEYPOINTS: &[u8] = b"\"keypoints\"";
/// Bytes that are read at a time.
const CHUNK: usize = 1 << 20;

/// SHA-256, in hexadecimal, of the paths, of what the annotation file holds, and of the options
/// that decide what is stored. An edited annotation file counts as a new one. Reads all of it.
///
/// # Errors
/// [`DaliError::Io`] if the annotation file is none or cannot be read.
pub fn source_key(options: &PrepOptions) -> Result<String, DaliError> {
    let path = &options.annotations;
    let content = crate::file::regular(path).and_then(|_| content_of(path));
    let content = content.map_err(DaliError::io("read the annotations", path))?;
    Ok(key_of(options, &content))
}

/// The key of options whose annotation file holds these bytes.
pub(super) fn key_of_bytes(options: &PrepOptions, annotations: &[u8]) -> String {
    let mut content = Content::default();
    content.read(annotations);
    key_of(options, &content.finish())
}

/// The key of options with a data set of another format: every value in it counts.
pub(super) fn key_of_dataset(options: &PrepOptions, dataset: &Dataset) -> String {
    struct Sum(Sha256);
    impl fmt::Write for Sum {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.update(text);
            Ok(())
        }
    }
    let mut sum = Sum(Sha256::new());
    // Writing into a sum does not fail.
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
    // Stores made before there was a choice keep their key.
    let turn = if *exif == Exif::Apply { " turned" } else { "" };
    // And those without columns.
    let columns = if columns.is_empty() { String::new() } else { format!(" {columns:?}") };
    let key = format!(
        "{:?} {:?} {content} {empty:?} {pixels:?} {skip_bad_images} {masks:?}{turn}{columns}",
        full(images),
        full(annotations),
    );
    hex::encode(Sha256::digest(key.as_bytes()))
}

fn content_of(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let (mut content, mut chunk) = (Content::default(), vec![0; CHUNK]);
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok(content.finish()),
            Ok(read) => content.read(&chunk[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The content of an annotation file, read piece by piece.
#[derive(Default)]
struct Content {
    sum: Sha256,
    /// The end of the piece before, in which a key may begin.
    end: Vec<u8>,
    has_keypoints: bool,
}

impl Content {
    fn read(&mut self, piece: &[u8]) {
        self.sum.update(piece);
        let has = |bytes: &[u8]| bytes.windows(KEYPOINTS.len()).any(|window| window == KEYPOINTS);
        let most = KEYPOINTS.len() - 1;
        let (start, rest) = piece.split_at(piece.len().min(most));
        self.end.extend(start);
        self.has_keypoints |= has(&self.end) || has(piece);
        self.end.extend(&rest[rest.len().saturating_sub(most)..]);
        self.end.drain(..self.end.len().saturating_sub(most));
    }

    /// Stores made before keypoints were stored are not taken for one that has them.
    fn finish(self) -> String {
        let sum = hex::encode(self.sum.finalize());
        if self.has_keypoints { sum + " keypoints" } else { sum }
    }
}
