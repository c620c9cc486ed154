//! Timed runs by MLPerf's rules: their logs, the system that they run on, and the score of several.

mod cache;
mod compared;
mod format;
mod implementation;
mod log;
mod score;
mod system;
mod timer;
mod writer;

pub use self::score::{Score, Scored};
pub use cache::{Cleared, clear_caches};
pub use compared::Compared;
pub use format::UNVERIFIED;
pub use implementation::write_implementation;
pub use log::{RunLog, Status};
pub use system::System;
pub use timer::{Submission, Timer};
