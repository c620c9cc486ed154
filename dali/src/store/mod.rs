//! The store: one directory that contains a data set, written once and mapped read-only.
//!
//! Little-endian, fixed-size records:
//! `header.json` (version, categories, counts, capacities, checksums), `images.bin` (index),
//! `objects.bin`, `parts.bin` (one entry a polygon ring or run list), `coords.bin` (f32 x, y),
//! `runs.bin` (u32 run lengths, column-major, beginning with zeros), `names.bin` (UTF-8),
//! `pixels.bin` (original JPEG bytes, or RGB u8).

mod check;
mod format;
mod mmap;
mod reader;
mod writer;

pub(crate) use check::{manifest, source_of};
pub use format::{Capacities, Category, FORMAT_VERSION, FileInfo, Header, PixelEncoding};
pub use reader::{ImageRecord, ObjectView, Segmentation, Store};
pub(crate) use writer::{NewImage, NewObject, NewSegmentation, StoreWriter};

#[cfg(target_endian = "big")]
compile_error!("the store maps little-endian records and this machine is big-endian");
