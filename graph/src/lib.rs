//! A training step as data: the Program, and the passes that turn it into executable launches.
//!
//! A [`Program`] lists op nodes over tensors with static shapes. Each tensor is written once; only
//! named state is updated, after all its readers. Everything else is derived from this description
//! by small separate passes.
//!
//! | what | where |
//! |---|---|
//! | nodes and tensors, checked as they are added | [`Program`], [`Node`], [`Tensor`] |
//! | gradients, from the ops' backward rules | [`autodiff::differentiate`] |
//! | gradients all-reduced in buckets | [`buckets::all_reduce_buckets`] |
//! | dead nodes removed | [`prune::prune`] |
//! | kept values made inputs, for comparisons | [`substitute::substitute`] |
//! | elementwise nodes fused into adjacent ops | [`fuse`] |
//! | launch order, streams and waits | [`Schedule`] |
//! | an offset in one arena for every value | [`Plan`] |
//! | tensors that persist across runs | [`StateSet`], [`DeviceState`] |
//! | execution node by node on the CPU, the reference | [`CpuExecutor`] |
//! | launches as data, captured as one graph | [`capture::LaunchList`], [`capture::capture`] |
//! | execution on a device: one launch per step | [`DeviceExecutor`], [`exec::device::Prepared`] |
//! | each node's results on a device, compared with the CPU's | [`check::NodeCheck`] |
//! | cost by part, the Program as text | [`report`] |
//! | start and end of each piece of work on a device | [`timeline::Stamps`] |
//!
//! The lessons of `graph/examples` build on one another:
//!
//! | `cargo run --release -p graph --example` | lesson |
//! |---|---|
//! | `01_first_program` | two ops described, printed and run on the CPU |
//! | `02_gradient` | the backward pass, checked by finite differences |
//! | `03_memory_plan` | streams, waits, and which tensors share bytes |
//! | `04_capture` | a step as one graph launch, on the emulated CUDA driver |
//! | `05_race_refused` | a missing wait, and the error message that reports the race |
//! | `06_own_op` | contract, cost, backward rule, CPU, launch and checks of a new op |
//!
//! A step from description to result: `loss = w + w + x` and its gradient.
//!
//! ```
//! use std::sync::Arc;
//!
//! use graph::autodiff::differentiate;
//! use graph::{CpuExecutor, Plan, Program, Schedule, StateSet};
//! use kernels::cpu::HostTensor;
//! use device::Target;
//! use kernels::ops::sum::Sum;
//! use kernels::{Role, TensorDesc};
//!
//! let mut program = Program::new();
//! program.set_part("model");
//! let x = program.input("x", TensorDesc::new(Role::Activation, &[1]));
//! let seed = program.input("seed", TensorDesc::new(Role::Scalar, &[1]));
//! let w = program.state("w", TensorDesc::new(Role::Weight, &[1]));
//! let loss = program.apply1(Sum, [w, w, x])?;
//! program.keep("loss", loss);
//! let gradients = differentiate(&mut program, &[loss], seed, &[w])?;
//! program.keep("grad/w", gradients[0]);
//!
//! let schedule = Schedule::single_stream(&program)?;
//! let plan = Plan::new(&program, &schedule, &Target::Cpu);
//! assert!(plan.arena_bytes() >= plan.peak_live_bytes(&schedule));
//!
//! let mut state = StateSet::new();
//! state.insert("w", HostTensor::f32(TensorDesc::new(Role::Weight, &[1]), vec![3.0]));
//! let mut executor = CpuExecutor::new(Arc::new(program), &state)?;
//! executor.input_mut("x")?.as_f32_mut()[0] = 0.5;
//! executor.input_mut("seed")?.as_f32_mut()[0] = 1.0;
//! executor.run(&mut state);
//! assert_eq!(executor.f32("loss")?, [6.5]);
//! assert_eq!(executor.f32("grad/w")?, [2.0]);
//! # Ok::<(), graph::GraphError>(())
//! ```
//!
//! On the CPU no capture is needed: each call of [`CpuExecutor::run`] runs the nodes one by one,
//! and the caller may change the inputs between calls.
//!
//! ```
//! use std::sync::Arc;
//!
//! use graph::{CpuExecutor, Program, StateSet};
//! use kernels::ops::sum::Sum;
//! use kernels::{Role, TensorDesc};
//!
//! let mut program = Program::new();
//! let x = program.input("x", TensorDesc::new(Role::Activation, &[2]));
//! let doubled = program.apply1(Sum, [x, x])?;
//! program.keep("doubled", doubled);
//! let mut state = StateSet::new();
//! let mut executor = CpuExecutor::new(Arc::new(program), &state)?;
//! for value in [1.0, 2.5] {
//!     executor.input_mut("x")?.as_f32_mut().fill(value);
//!     executor.run(&mut state);
//!     assert_eq!(executor.f32("doubled")?, [2.0 * value; 2]);
//! }
//! assert_eq!(executor.node_seconds().len(), 1);
//! # Ok::<(), graph::GraphError>(())
//! ```
//!
//! **Invariant:** nothing here depends on the model; this crate contains no detection terms.

pub mod autodiff;
pub mod buckets;
pub mod capture;
pub mod check;
mod error;
pub mod exec;
pub mod finite;
pub mod fuse;
pub mod plan;
pub mod program;
pub mod prune;
pub mod report;
pub mod schedule;
pub mod state;
mod stream_roles;
pub mod streams;
pub mod substitute;
pub mod timeline;

pub use error::GraphError;
pub use exec::{CpuArena, CpuExecutor, DeviceExecutor, DeviceState};
pub use plan::Plan;
pub use program::{Node, NodeId, Program, Tensor, TensorId, TensorKind};
pub use schedule::Schedule;
pub use state::StateSet;
