//! What can be wrong with annotations and detections, one clear sentence each.

use std::path::PathBuf;

/// Why a scoring call refused its input. Every message names the file (or the list handed over in
/// memory), the entry by its position counted from 0, and what is wrong with it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScoreError {
    /// A file could not be read.
    #[error("cannot read {}: {source}", file.display())]
    Read {
        /// The file asked for.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file could not be written.
    #[error("cannot write {}: {source}", file.display())]
    Write {
        /// The file asked for.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The ground truth breaks a rule of COCO's annotation format.
    #[error("annotations {origin}: {reason}")]
    GroundTruth {
        /// The file, or `in memory`.
        origin: String,
        /// The entry and what is wrong with it.
        reason: String,
    },
    /// The detections break a rule of COCO's results format, or do not fit the annotations.
    #[error("detections {origin}: {reason}")]
    Detections {
        /// The file, or `in memory`.
        origin: String,
        /// The entry and what is wrong with it.
        reason: String,
    },
    /// Runs or polygons that make no mask.
    #[error("mask of {height}x{width} (height x width): {reason}")]
    Mask {
        /// Rows of the mask.
        height: u32,
        /// Columns of the mask.
        width: u32,
        /// What is wrong with it.
        reason: String,
    },
    /// The scorer refused data that passed every check of ours.
    #[error("scoring failed: {0}")]
    Scorer(#[from] hotcoco::Error),
}
