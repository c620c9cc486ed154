//! Work in the background of training.

use std::path::Path;
use std::thread::{Builder, JoinHandle};

use crate::error::EngineError;

/// A value that a thread of its own makes.
#[derive(Debug)]
pub(super) struct Background<T>(JoinHandle<T>);

impl<T: Send + 'static> Background<T> {
    /// Starts `work` on a thread of this name.
    ///
    /// # Errors
    /// [`EngineError::Io`] if there can be no thread.
    pub(super) fn start(
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Self, EngineError> {
        let thread = Builder::new().name(name.to_string()).spawn(work);
        thread.map(Self).map_err(crate::run_dir::io(Path::new("a thread")))
    }

    /// True if the value is made: then [`Self::join`] does not wait.
    pub(super) fn is_ready(&self) -> bool {
        self.0.is_finished()
    }

    /// Waits for the value; a panic of the thread goes on here.
    pub(super) fn join(self) -> T {
        self.0.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}
