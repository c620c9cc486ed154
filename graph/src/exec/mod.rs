//! Execution of a planned program: on the CPU node by node, on a device as a captured graph.

mod arena;
mod cpu;
pub mod device;
mod look;

pub use arena::CpuArena;
pub use cpu::CpuExecutor;
pub use device::{DeviceExecutor, DeviceState};
pub use look::{Look, Seen};
