//! Reads COCO annotation files: images, annotations, categories; each error names its entry.

mod fields;
mod read;
mod types;

pub use fields::{flag, id, ids, rotation, side, turned_box};
pub(crate) use read::{bytes_of, parse};
pub use read::{list, lists, read};
pub(crate) use types::name_in_url;
pub use types::{Annotation, Category, Dataset, Image, RunCounts, Segmentation};
