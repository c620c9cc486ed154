//! The emulated device: the CUDA kernels, compiled by g++, behind [`device::Device`].
//!
//! For tests only. It runs what CUDA would run (the same sources, grids, packed arguments, streams,
//! events, captured graphs) and is strict where CUDA is lax: memory starts poisoned and lies
//! between red zones, a launch may access only the bytes that it declares, divergent barriers and
//! warp operations are reported with file and line, and work runs as late, and in as unusual an
//! order, as streams and events allow. A captured graph in which two unordered launches access the
//! same bytes is rejected without being run.
//!
//! The faults that it must catch are planted: kernels in `planted/`, tests in `tests/planted/`. The
//! script `sanitize` runs everything under the compiler's sanitizers, which see what the device
//! cannot: reads out of bounds, misaligned vectors, races.
//!
//! On request, products are summed as on tensor cores, and what warps ask of memory is counted
//! ([`Requests`]). Not modelled: weak memory, speed.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod capture;
mod command;
mod counted;
mod emulated;
mod library;
mod memory;
mod planted;
mod queue;
mod ranks;
mod staging;

pub use counted::{CountedLaunch, Operation, Requests, Site};
pub use emulated::{Alive, EmulatedDevice, Order};
pub use library::kernel_names;
pub use planted::Planted;

/// Upper bound on the error of a sum on tensor cores, per product, in units of the root mean square
/// of the sums: tensor cores truncate where fp32 rounds. The model of an A100 shows 7.0e-9 to
/// 8.9e-9, for sums of 512 to 32,768.
pub const CUT_PER_PRODUCT: f64 = 1e-8;

/// The sanitizers that the kernels were built with, as given in `ONEGRAPH_EMULATED_SANITIZE`; empty
/// for none.
pub const SANITIZE: &str = env!("EMULATED_SANITIZE");
