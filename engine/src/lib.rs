//! onegraph's engine: the detector as Programs, the training loop, evaluation, checkpoints, and
//! the command line on top.

pub mod checkpoint;
pub mod cli;
pub mod dataset;
pub mod draw;
mod error;
pub mod evaluate;
mod events;
pub mod metrics;
pub mod model;
pub mod progress;
pub mod run_dir;
pub mod runtime;
pub mod train;
pub mod weights;

pub use error::EngineError;
