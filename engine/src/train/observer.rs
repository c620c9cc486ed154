//! Events of a run, for an observer that times the run.

use std::fmt::Debug;

use crate::error::EngineError;
use crate::evaluate::Evaluation;

/// An event of a session, on rank 0.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// All programs are planned and captured, and the weights initialized. Only sizes and class
    /// names of the data were read.
    Prepared {
        /// Number of images to train on.
        train_images: usize,
        /// Number of images to evaluate on.
        val_images: usize,
        /// Number of passes of each rank in a step.
        passes: usize,
        /// Steps per epoch.
        steps_per_epoch: u64,
    },
    /// An epoch begins; epochs are counted from 1.
    EpochBegins(u64),
    /// An epoch has ended.
    EpochEnds(u64),
    /// Detection begins after this epoch; training waits.
    DetectionBegins(u64),
    /// Detection after this epoch has ended.
    DetectionEnds(u64),
    /// The detections after this epoch have been scored.
    Scored {
        /// The epoch.
        epoch: u64,
        /// The scores.
        evaluation: &'a Evaluation,
        /// Seconds that training waited.
        waited_seconds: f64,
    },
    /// The result of the run is known.
    Decided {
        /// True if the targets were reached.
        is_target_reached: bool,
    },
}

/// Receives the events of a session.
pub trait Observer: Debug + Send {
    /// Receives an event, on the session's thread.
    ///
    /// # Errors
    /// A record that cannot be written; the error ends the session.
    fn see(&mut self, event: &Event<'_>) -> Result<(), EngineError>;
}
