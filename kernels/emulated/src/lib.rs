//! The emulated device: the CUDA kernels, compiled by g++, behind [`device::Device`].
//!
//! For tests; it is no product device. It runs what CUDA would run (the same sources, grids,
//! packed arguments, streams, events, captured graphs) and is strict where CUDA is lax: memory
//! starts poisoned and lies between red zones, a launch may reach only the bytes that it declares,
//! barriers and warp operations that diverge are reported with file and line, and work runs as
//! late, and in as odd an order, as streams and events allow. In a captured graph two launches
//! that reach the same bytes in no fixed order are refused without being run.
//!
//! What it must catch is planted: kernels in `planted/`, tests in `tests/planted/`. The script
//! `sanitize` runs all of it under the compiler's sanitizers, which see what the device cannot:
//! reads out of bounds, misaligned vectors, races.
//!
//! On request, products are summed as tensor cores do. Not modelled: weak memory, speed.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod capture;
mod command;
mod emulated;
mod library;
mod memory;
mod planted;
mod queue;
mod ranks;
mod staging;

pub use emulated::{EmulatedDevice, Order};
pub use library::kernel_names;
pub use planted::Planted;

/// Error of a sum on tensor cores, per product, in units of the root mean square of the sums, at
/// most: tensor cores cut off where fp32 rounds. The model of an A100 shows 7.0e-9 to 8.9e-9, for
/// sums of 512 to 32,768.
pub const CUT_PER_PRODUCT: f64 = 1e-8;

/// The sanitizers that the kernels were built with, as given in `ONEGRAPH_EMULATED_SANITIZE`; empty
/// for none.
pub const SANITIZE: &str = env!("EMULATED_SANITIZE");
