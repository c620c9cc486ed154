//! Which changes of the forward loop pay off on a GPU: variants of it, each against today's.
//!
//! A variant is a CUDA source of `cuda/` that differs from `conv2d_f16_large` in what its head asks
//! about. It is compiled ahead, held to the baseline's output, bit for bit where it sums in the
//! same order, and only then timed, beside the baseline and beside the figure that
//! was expected of it. The variants of sm_90a come with a check of their descriptors, which runs
//! first.
//!
//! [`Trial`] is the part that runs on any device, the emulated one too; [`measure`] needs CUDA.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod compiled;
pub mod descriptor;
pub mod expected;
pub mod identity;
pub mod measure;
mod memory;
pub mod shapes;
mod trial;
pub mod variants;

pub use trial::{Agreement, Trial};
