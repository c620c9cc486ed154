//! Translates a detection Program into an ONNX file: each op has one translation, to standard ops
//! of [`OPSET`].
//!
//! The Program is that of one image, unfused; the file takes any number of images. Three things
//! differ from the Program, everywhere in the same way:
//!
//! * A map `[N, H, W, C]` is `[N, C, H, W]`, as ONNX's convolutions want it.
//! * A list with a capacity and a count is exactly as long as its count, so translations read no
//!   counts.
//! * Indices are i64, and all that depends on weights and shapes alone is a constant.
//!
//! | what | where |
//! |---|---|
//! | the walk over the Program, and its inputs and outputs | [`translate`] |
//! | convolutions and linear layers | `products` |
//! | preprocessing, norms, pooling, RoIAlign | `maps` |
//! | proposals: top-k, decoding, NMS | `proposals` |
//! | detections: scores, boxes, NMS within classes | `detections` |
//! | the file format | `proto` |

mod boxes;
mod detections;
mod file;
mod maps;
mod nodes;
mod products;
mod proposals;
mod proto;
mod translation;

pub use file::{Input, Output, Request, translate};
pub use translation::OnnxError;

/// Version of the standard ops.
pub const OPSET: i64 = 17;
