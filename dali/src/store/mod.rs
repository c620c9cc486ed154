//! The store: one directory that contains a data set, written once and mapped read-only.
//!
//! Little-endian, fixed-size records: `header.json` (version, categories, counts, capacities,
//! checksums, and a seal over its contents), `images.bin` (index; for each image, whether an object
//! has a box larger than one pixel), `objects.bin`, `parts.bin` (one entry per polygon ring or run
//! list), `coords.bin` (f32 x, y), `runs.bin` (u32 run lengths, column-major, starting with zeros),
//! `names.bin` (UTF-8), `pixels.bin` (original JPEG bytes, or RGB u8; each image's checksum is in
//! the index), `sources.bin` (size and time of each image file, to detect changed files). Optional
//! are `keypoints.bin` (f32 x, y, visibility; the header has their names) and `columns.bin` (f32;
//! additional numbers of each object, which the header lists).

mod check;
mod columns;
mod format;
mod keypoints;
mod mmap;
mod reader;
mod sources;
mod stores;
mod writer;

pub(crate) use check::{manifest, source_of};
pub use columns::{Column, column};
pub(crate) use format::SourceRow;
pub use format::{Capacities, Category, FORMAT_VERSION, FileInfo, Header, PixelEncoding};
pub(crate) use keypoints::is_sound;
pub use keypoints::{Keypoints, MAX_KEYPOINTS};
pub use mmap::exit_on_bus_errors;
pub use reader::{Arrival, ImageRecord, ObjectView, Segmentation, Store};
pub use sources::SourceChange;
pub use stores::{Classes, Contents, Stores};
pub(crate) use writer::{NewImage, NewObject, NewSegmentation, StoreWriter};

#[cfg(target_endian = "big")]
compile_error!("the store maps little-endian records and this machine is big-endian");
