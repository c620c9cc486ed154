//! Operators of onegraph: contract, cost, backward rule, CPU reference and CUDA launches of each.
//!
//! Each op has a folder in [`ops`] with all of its code. The results of every other device are
//! compared with the CPU reference. This crate does not depend on programs: `graph` connects ops to
//! programs, and `engine` builds the model from them.
//!
//! | what | where |
//! |---|---|
//! | an op, with its cost | [`Op`], [`Cost`], [`OpError`] |
//! | an op's declaration, and its hand-written part | [`op!`], [`contract`] |
//! | a tensor's shape and role | [`TensorDesc`], [`Role`], [`DType`] |
//! | how gradients flow back, as ops to run | [`BackwardRule`], [`Source`], [`Sink`] |
//! | all ops, with the table of their cases | [`ops`], [`ops::cases`] |
//! | tensors of the host | [`cpu::HostTensor`] |
//! | running a single op | [`on_cpu::run`], [`on_device::run_updating`] |
//! | a case of an op, and the checks that every case passes | [`case`] |
//! | the compiled CUDA kernels | [`compiled`] |
//! | the instruction set of GEMMs on the CPU | [`isa`] |
//! | stateless random numbers | [`philox`] |
//! | arithmetic that several ops share | [`boxes`], [`coco`], [`losses`], [`resize`], [`paste`] |
//! | the mapping of an image to the network's input | [`view`] |
//!
//! A single op: its output, its cost, its backward rule, and a case that checks the gradient by
//! finite differences.
//!
//! ```
//! use kernels::case::{OpCase, check_gradients, check_runs};
//! use kernels::cpu::HostTensor;
//! use kernels::ops::sum::Sum;
//! use kernels::{Op, Role, Source, TensorDesc, on_cpu};
//!
//! let desc = TensorDesc::new(Role::Activation, &[2, 2]);
//! let a = HostTensor::f32(desc.clone(), vec![1.0, 2.0, 3.0, 4.0]);
//! let b = HostTensor::f32(desc.clone(), vec![10.0, 20.0, 30.0, 40.0]);
//! let y = on_cpu::run(&Sum, &[a.clone(), b.clone()])?;
//! assert_eq!(y[0].as_f32(), [11.0, 22.0, 33.0, 44.0]);
//!
//! // Four additions; two tensors of 16 bytes read and one written.
//! let inputs = [desc.clone(), desc.clone()];
//! let outputs = Sum.infer(&inputs, &[])?;
//! let cost = Sum.cost(&inputs, &outputs);
//! assert_eq!((cost.flops, cost.bytes), (4, 48));
//!
//! // Both gradients equal the output's gradient: no op runs, nothing is copied.
//! let rule = Sum.backward(&inputs, &outputs);
//! assert!(rule.steps.is_empty());
//! assert_eq!(rule.aliases, [(Source::GradOutput(0), 0), (Source::GradOutput(0), 1)]);
//!
//! let case = OpCase::new("by hand", Sum, vec![a, b]).grad(&[0, 1]);
//! check_runs(&case)?;
//! check_gradients(&case)?;
//!
//! let refused = Sum.infer(&[desc, TensorDesc::new(Role::Activation, &[3])], &[]);
//! let message = refused.expect_err("two shapes").to_string();
//! assert_eq!(message, "sum: x_i should have shape [2, 2], got [3]");
//! # Ok::<(), kernels::case::CaseError>(())
//! ```
//!
//! `graph/examples/06_own_op.rs` implements a new op; CONTRIBUTING.md lists the files of a new
//! folder of [`ops`].

// Tests may panic; elsewhere errors are values.
#![cfg_attr(test, allow(clippy::unwrap_used))]

#[macro_use]
mod inputs;

#[macro_use]
pub mod contract;

pub mod boxes;
pub mod case;
pub mod check;
pub mod coco;
mod column_sums;
pub mod compiled;
mod counted;
pub mod cpu;
mod depthwise;
mod error;
pub mod frozen_bn;
pub mod gemm_check;
mod grad_epilogue;
pub mod isa;
pub mod losses;
mod many_tensors;
mod matmul;
pub mod occupancy;
pub mod on_cpu;
pub mod on_device;
pub mod op;
pub mod ops;
pub mod paste;
pub mod philox;
pub mod resize;
pub mod signs;
mod tasks;
pub mod time;
pub mod view;

pub use device::tensor::{CpuPrecision, DType, Precision, Role, TensorDesc};
pub use error::OpError;
pub use grad_epilogue::GradEpilogue;
pub use op::workspace_bytes;
pub use op::{BackwardRule, BackwardStep, Cost, Fusion, Op, OpRef, Sink, Source, Traits};
