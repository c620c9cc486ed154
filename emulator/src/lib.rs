//! `libcuda.so.1` for tests: the CUDA driver's functions, and a PTX interpreter on the CPU.
//!
//! This library is only for tests; onegraph never links it. `docs/emulated-driver.md` describes the
//! model.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod cuda;
mod exec;
mod lanes;
mod memory;
mod ptx;
mod random;
mod tensor_map;

pub use exec::counts::{Operation, Requests};
