//! onegraph's engine: the detectors as Programs, the training loop, evaluation, checkpoints, and
//! the command line.
//!
//! The crate is not on crates.io: depend on it by path or git. Build with `--release`; a debug
//! build trains and detects many times slower:
//!
//! ```toml
//! [dependencies]
//! engine = { path = "../onegraph/engine" }
//! ```
//!
//! Use [`predictor::Predictor`] for detection; `engine/examples/predict.rs` is a complete example:
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

// Only tests may panic on errors; all other code returns them.
#![cfg_attr(test, allow(clippy::unwrap_used))]

// Only for its dependencies: see tools/workspace-hack/Cargo.toml.
use workspace_hack as _;

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
