//! Translates a detection Program into an ONNX file: each op has one translation, to standard ops
//! of [`OPSET`].
//!
//! The Program is for one image, unfused; the file takes any number of images. Three things
//! consistently differ from the Program:
//!
//! * A map `[N, H, W, C]` is `[N, C, H, W]`, as required by ONNX convolutions.
//! * A list with a capacity and a count has exactly the length of its count, so translations do not
//!   read counts.
//! * Indices are i64, and everything that depends only on weights and shapes is a constant.
//!
//! | what | where |
//! |---|---|
//! | the traversal of the Program, and its inputs and outputs | [`translate`] |
//! | convolutions and linear layers | `products` |
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

/// Version of the standard ops.
pub const OPSET: i64 = 17;
