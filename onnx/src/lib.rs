//! Translates a detection Program into an ONNX file. Each op has one translation, which uses only
//! standard ops of [`OPSET`].
//!
//! The Program must be unfused and for one image; the file accepts any number of images. The file
//! differs from the Program in three ways:
//!
//! * A map `[N, H, W, C]` is `[N, C, H, W]`, as required by ONNX convolutions.
//! * A list that has a capacity and a count in the Program has exactly `count` elements, so
//!   translations do not read counts.
//! * Indices are i64, and all values that depend only on weights and shapes are constants.
//!
//! | what | where |
//! |---|---|
//! | the traversal of the Program, and its inputs and outputs | [`translate`] |
//! | convolutions and linear layers | `gemm` |
//! | preprocessing, norms, pooling, RoIAlign | `maps` |
//! | proposals: top-k, decoding, NMS | `proposals` |
//! | detections: scores, boxes, NMS within classes | `detections` |
//! | the file format | `proto` |

mod boxes;
mod detections;
mod file;
mod gemm;
mod maps;
mod nodes;
mod proposals;
mod proto;
mod translation;

pub use file::{Input, Output, Request, translate};
pub use translation::OnnxError;

/// Version of ONNX's standard ops (opset).
pub const OPSET: i64 = 17;
