//! Events of a run, as they happen, for an observer that times the run.

use std::fmt::Debug;

use crate::error::EngineError;
use crate::evaluate::Evaluation;

/// An event in a session, on rank 0.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// Programs are planned and captured, and the model has its initial weights. Only sizes and
    /// class names of the data were read.
    Prepared {
        /// Images to train on.
        train_images: usize,
        /// Images to evaluate on.
        val_images: usize,
        /// Passes of each rank in a step.
        passes: usize,
        /// Steps per epoch.
        steps_per_epoch: u64,
    },
    /// An epoch begins; the first is 1.
    EpochBegins(u64),
    /// An epoch has ended.
    EpochEnds(u64),
    /// Training waits while the model detects, after this epoch.
    DetectionBegins(u64),
    /// The model has detected.
    DetectionEnds(u64),
    /// The detections after this epoch are scored.
    Scored {
        /// The epoch.
        epoch: u64,
        /// The scores.
        evaluation: &'a Evaluation,
        /// Seconds that training waited.
        waited_seconds: f64,
    },
    /// The result of the run is known: targets reached, or not.
    Decided {
        /// True if they were reached.
        is_target_reached: bool,
    },
}

/// Receives the events of a session.
pub trait Observer: Debug + Send {
    /// Called on the session's thread.
    ///
    /// # Errors
    /// A record that cannot be written; the session ends with it.
    fn see(&mut self, event: &Event<'_>) -> Result<(), EngineError>;
}
