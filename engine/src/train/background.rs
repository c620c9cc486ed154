//! Threads beside training.

use std::path::Path;
use std::thread::{Builder, JoinHandle};

use crate::error::EngineError;

/// Runs `work` on a thread of this name.
///
/// # Errors
/// [`EngineError::Io`] if there can be no thread.
pub(super) fn in_background<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, EngineError> {
    let thread = Builder::new().name(name.to_string()).spawn(work);
    thread.map_err(crate::run_dir::io(Path::new("a thread")))
}

/// What a thread returns; a panic goes on here.
pub(super) fn joined<T>(thread: JoinHandle<T>) -> T {
    match thread.join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}
