//! Background work during training.

use std::path::Path;
use std::thread::{Builder, JoinHandle};

use crate::error::EngineError;

/// A value computed on a separate thread.
#[derive(Debug)]
pub(super) struct Background<T>(JoinHandle<T>);

impl<T: Send + 'static> Background<T> {
    /// Starts `work` on a thread of this name.
    ///
    /// # Errors
    /// [`EngineError::Io`] if the thread cannot be created.
    pub(super) fn start(
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Self, EngineError> {
        let thread = Builder::new().name(name.to_string()).spawn(work);
        thread.map(Self).map_err(crate::run_dir::io(Path::new("a thread")))
    }

    /// True if the value is ready, so that [`Self::join`] does not wait.
    pub(super) fn is_ready(&self) -> bool {
        self.0.is_finished()
    }

    /// Waits for the value; a panic of the thread is propagated.
    pub(super) fn join(self) -> T {
        self.0.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}
