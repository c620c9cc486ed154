//! A step as data: the Program, and the passes that turn it into something that runs.
//!
//! A [`Program`] lists op nodes over tensors with static shapes. Each tensor is written once; only
//! named state is updated, after all its readers. From that description follow [`autodiff`],
//! [`prune`], [`schedule`], [`plan`] and [`report`], each a small pass with tests of its own, and
//! the execution in [`exec`].
//!
//! **Invariant:** nothing here knows what is computed; no word of detection stands in this crate.

pub mod autodiff;
mod error;
pub mod exec;
pub mod plan;
pub mod program;
pub mod prune;
pub mod report;
pub mod schedule;
pub mod state;

pub use error::GraphError;
pub use exec::CpuExecutor;
pub use plan::Plan;
pub use program::{Node, NodeId, Program, Tensor, TensorId, TensorKind};
pub use schedule::Schedule;
pub use state::StateSet;
