//! Errors in annotations and detections, with one-line messages.

use std::path::PathBuf;

/// Why a scoring call rejected its input. Messages contain the file (or `in memory`), the index of
/// the entry, counted from 0, and the error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScoreError {
    /// A file could not be read.
    #[error("cannot read {}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The I/O error.
        source: std::io::Error,
    },
    /// A file could not be written.
    #[error("cannot write {}: {source}", file.display())]
    Write {
        /// The file.
        file: PathBuf,
        /// The I/O error.
        source: std::io::Error,
    },
    /// The ground truth violates COCO's annotation format.
    #[error("annotations {origin}: {reason}")]
    GroundTruth {
        /// The file, or `in memory`.
        origin: String,
        /// The entry and its error.
        reason: String,
    },
    /// The detections violate COCO's results format, or do not match the annotations.
    #[error("detections {origin}: {reason}")]
    Detections {
        /// The file, or `in memory`.
        origin: String,
        /// The entry and its error.
        reason: String,
    },
    /// Runs or polygons do not form a mask.
    #[error("mask of {height}x{width} (height x width): {reason}")]
    Mask {
        /// Rows of the mask.
        height: u32,
        /// Columns of the mask.
        width: u32,
        /// The error.
        reason: String,
    },
    /// The scorer rejected data that had passed all checks of this crate.
    #[error("scoring failed: {0}")]
    Scorer(#[from] hotcoco::Error),
}
