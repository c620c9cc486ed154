//! onegraph's engine: the detector as Programs, the training loop, evaluation, checkpoints, and
//! the command line on top.

// In a test a panic is the report; elsewhere errors are values.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod append;
pub mod checkpoint;
pub mod classes;
pub mod cli;
mod compact_json;
pub mod dataset;
pub mod diagram;
pub mod draw;
mod error;
pub mod evaluate;
mod events;
pub mod metrics;
pub mod model;
mod page;
pub mod predictor;
pub mod progress;
pub mod provenance;
pub mod run_dir;
pub mod runtime;
pub mod train;
pub mod weights;

pub use error::EngineError;
