//! The data pipeline, host only: COCO files -> store -> loader, and the synthetic data set.
//!
//! [`prep::run`] turns COCO JSON and images into one directory, the [`store::Store`], which is
//! mapped read-only; [`loader`] decodes images of it into slots that the caller owns;
//! [`synthetic::generate`] draws a data set of shapes for machines without data.

pub mod coco;
pub mod decode;
pub mod error;
pub mod loader;
mod place;
pub mod prep;
pub mod progress;
pub mod store;
pub mod synthetic;

pub use error::DaliError;
pub use progress::{Progress, Stage};
pub use store::{PixelEncoding, Store};
