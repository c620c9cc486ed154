//! Execution of a planned program.

mod arena;
mod cpu;

pub use cpu::CpuExecutor;
