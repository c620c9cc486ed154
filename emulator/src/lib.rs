//! `libcuda.so.1` for tests: the CUDA driver's functions, and an executor of PTX on the processor.
//!
//! For tests only, and never linked by the product: `docs/emulated-driver.md` says what it models.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod cuda;
mod exec;
mod lanes;
mod memory;
mod ptx;
mod random;
mod tensor_map;

pub use exec::counts::{Operation, Requests};
