//! onegraph's engine: the detector as Programs, the training loop, evaluation, checkpoints, and
//! the command line on top.
//!
//! The crate is not on crates.io. A program depends on it by a path or by git, and builds it in
//! release mode (`--release`), as a debug build trains and detects many times slower:
//!
//! ```toml
//! [dependencies]
//! engine = { path = "../onegraph/engine" }
//! ```
//!
//! Detection from a program is [`predictor::Predictor`]; `engine/examples/predict.rs` is a complete
//! one:
//!
//! ```no_run
//! use engine::predictor::Predictor;
//! use engine::runtime::Backend;
//!
//! let mut predictor = Predictor::from_run("runs/mine".as_ref(), &[], &Backend::Cpu)?;
//! for object in predictor.predict_file("street.jpg".as_ref())? {
//!     let bitmap = object.mask.map(|mask| mask.decode());
//!     println!("{} {:.2} {:?} {}", object.name, object.score, object.bbox, bitmap.is_some());
//! }
//! # Ok::<(), engine::EngineError>(())
//! ```

// In tests a panic is the report; elsewhere errors are values.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod append;
pub mod checkpoint;
pub mod classes;
pub mod cli;
mod compact_json;
mod comparison;
pub mod config;
mod data_page;
pub mod dataset;
pub mod draw;
mod error;
pub mod evaluate;
mod events;
pub mod gpu;
pub mod metrics;
pub mod mlperf;
pub mod model;
mod names;
pub mod onnx_file;
mod page;
pub mod picture;
pub mod predictor;
pub mod progress;
pub mod provenance;
pub mod remote;
mod rows;
pub mod run_dir;
mod run_summary;
pub mod runtime;
pub mod team;
pub mod train;
pub mod view;
pub mod weights;

pub use error::EngineError;
