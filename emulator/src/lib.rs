//! `libcuda.so.1` for tests: the CUDA driver's functions, and a PTX interpreter on the CPU.
//!
//! For tests only, and never linked by onegraph; the model is in `docs/emulated-driver.md`.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod cuda;
mod exec;
mod lanes;
mod memory;
mod ptx;
mod random;
mod tensor_map;

pub use exec::counts::{Operation, Requests};
