//! Timed runs under MLPerf's rules: logs, system descriptions, and the score of several runs.

mod cache;
mod compared;
mod curve;
mod format;
mod implementation;
mod log;
mod rcp;
mod recipe;
mod rules;
mod score;
mod system;
mod timer;
mod writer;

pub use self::score::{Score, Scored};
pub use cache::{Cleared, clear_caches};
pub use compared::Compared;
pub use curve::Curve;
pub use format::UNVERIFIED;
pub use implementation::write_implementation;
pub use log::{RunLog, Status};
pub use rcp::{Convergence, Verdict};
pub use recipe::{Recipe, TRAIN_IMAGES};
pub use rules::Deviation;
pub use system::System;
pub use timer::{Submission, Timer};
