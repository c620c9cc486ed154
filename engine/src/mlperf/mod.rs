//! Timed runs by MLPerf's rules: what their logs say, and what several of them score.

mod log;
mod score;

pub use log::{RunLog, Status};
pub use score::{Score, Scored};
