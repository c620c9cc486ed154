//! Progress of long operations, reported to the caller, who may show a bar.

use std::path::PathBuf;

use crate::owner::Owner;

/// The current stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// Waiting for another process that is writing the same directory; reported repeatedly.
    Waiting {
        /// The other process.
        owner: Owner,
        /// The file of its lock.
        lock: PathBuf,
    },
    /// The process that was writing the same directory ended without finishing.
    TakenOver {
        /// Its process id in its own container.
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
    /// Units done in this stage (images; the annotation file counts as one).
    pub done: usize,
    /// Units in this stage.
    pub total: usize,
}
