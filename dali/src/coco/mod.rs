//! Reads COCO annotation files: images, annotations, categories; each error names its entry.

mod read;
mod types;

pub use read::read;
pub(crate) use read::{bytes_of, parse};
pub(crate) use types::name_in_url;
pub use types::{Annotation, Category, Dataset, Image, RunCounts, Segmentation};
