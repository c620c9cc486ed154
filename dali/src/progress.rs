//! Progress of long operations, which the caller can show as a progress bar.

use std::path::PathBuf;

use crate::owner::Owner;

/// The current stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// Waiting for a different process that is writing the directory; reported repeatedly.
    Waiting {
        /// The process that is writing.
        owner: Owner,
        /// The process's lock file.
        lock: PathBuf,
    },
    /// The process that was writing the directory has ended before it was complete.
    TakenOver {
        /// Process id, counted inside the process's container.
        pid: u32,
    },
    /// Generating and writing synthetic images.
    Drawing,
    /// Parsing the annotation file.
    Annotations,
    /// Checking, decoding and storing images.
    Images,
    /// Flushing the store to disk and renaming it into place.
    Finishing,
}

/// One report of progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The current stage.
    pub stage: Stage,
    /// Completed units of this stage: images, or 1 for the annotation file.
    pub done: usize,
    /// Total units of this stage.
    pub total: usize,
}
