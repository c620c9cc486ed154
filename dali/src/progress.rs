//! How long work tells its caller where it stands; the caller draws the bar, or not.

/// What is being worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Drawing and writing synthetic images.
    Drawing,
    /// Parsing the annotation file.
    Annotations,
    /// Checking, decoding and storing images.
    Images,
    /// Flushing the store to disk and renaming it into place.
    Finishing,
}

/// One report of progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is being worked on.
    pub stage: Stage,
    /// Units done in this stage (images; the annotation file counts as one).
    pub done: usize,
    /// Units in this stage.
    pub total: usize,
}
