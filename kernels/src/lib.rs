//! Operators of onegraph.
//!
//! One folder an op in [`ops`], with everything about it: the contract (shapes, roles), its cost,
//! its backward rule as data, and the CPU reference, which is the oracle of every other device.
//! Nothing here knows what a program is; `graph` chains ops, and `engine` names what they mean.

// In a test a panic is the report; everywhere else faults are values.
#![cfg_attr(test, allow(clippy::unwrap_used))]

#[macro_use]
mod inputs;

pub mod boxes;
pub mod case;
pub mod check;
pub mod coco;
pub mod compiled;
mod counted;
pub mod cpu;
mod error;
pub mod frozen_bn;
pub mod losses;
mod matmul;
pub mod on_cpu;
pub mod on_device;
pub mod op;
pub mod ops;
pub mod paste;
pub mod philox;
pub mod resize;

pub use device::tensor::{DType, Role, TensorDesc};
pub use error::OpError;
pub use op::{BackwardRule, BackwardStep, Cost, Op, OpRef, Sink, Source, workspace_bytes};
