//! The data pipeline of onegraph, host only: COCO files -> store -> batches.
//!
//! [`prep::run`] converts COCO JSON and images into one directory, the [`store::Store`], which is
//! memory-mapped read-only; [`order`] determines the images of each step, and [`loader`] decodes
//! them into slots that the caller owns; [`synthetic::generate`] generates a synthetic data set for
//! machines without data.

pub mod coco;
pub mod decode;
pub mod error;
pub mod file;
pub mod formats;
pub mod loader;
mod lock;
mod mix;
pub mod order;
mod owner;
mod place;
mod plain;
pub mod prep;
pub mod progress;
pub mod store;
pub mod synthetic;
pub mod unfinished;

pub use error::DaliError;
pub use lock::Lock;
pub use mix::mix;
pub use owner::Owner;
pub use plain::plain;
pub use progress::{Progress, Stage};
pub use store::{PixelEncoding, Store};
