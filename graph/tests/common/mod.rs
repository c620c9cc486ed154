//! Shared test code: toy ops, random programs, two interpreters for programs, and the emulated GPU.

pub(crate) mod checker;
pub(crate) mod interpreter;
pub(crate) mod mix;
pub(crate) mod on_device;
pub(crate) mod random;
pub(crate) mod toy;

use std::sync::Arc;

use device::Target;
use graph::{CpuExecutor, Plan, Program, Schedule, StateSet, TensorId};
use kernels::cpu::HostTensor;
use kernels::{Op, Role, TensorDesc};

/// Builds programs of ops whose inputs are known to be valid.
pub(crate) trait Build {
    /// Adds a node with one output.
    fn node(&mut self, op: impl Op + 'static, inputs: impl Into<Vec<TensorId>>) -> TensorId;
}

impl Build for Program {
    fn node(&mut self, op: impl Op + 'static, inputs: impl Into<Vec<TensorId>>) -> TensorId {
        self.apply1(op, inputs).expect("inputs that fit")
    }
}

/// An f32 activation of one dimension.
pub(crate) fn vector(len: usize) -> TensorDesc {
    TensorDesc::new(Role::Activation, &[len])
}

/// An f32 activation that holds `values`.
pub(crate) fn tensor(values: &[f32]) -> HostTensor {
    HostTensor::f32(vector(values.len()), values.to_vec())
}

/// One tensor of state.
pub(crate) fn state(name: &str, values: &[f32]) -> StateSet {
    let mut state = StateSet::new();
    state.insert(name, tensor(values));
    state
}

/// The CPU executor of a program with all its state.
pub(crate) fn bound(program: &Program, state: &StateSet) -> CpuExecutor {
    CpuExecutor::new(Arc::new(program.clone()), state).expect("bound")
}

/// The schedule on one stream, and its plan for the CPU.
pub(crate) fn on_one_stream(program: &Program) -> (Schedule, Plan) {
    let schedule = Schedule::single_stream(program).expect("ordered");
    let plan = Plan::new(program, &schedule, &Target::Cpu);
    (schedule, plan)
}

/// The schedule with node `i` on stream `streams[i]`, and its plan for the CPU.
pub(crate) fn on_streams(program: &Program, streams: &[usize]) -> (Schedule, Plan) {
    let schedule = Schedule::with_streams(program, streams).expect("ordered");
    let plan = Plan::new(program, &schedule, &Target::Cpu);
    (schedule, plan)
}

/// The message of the panic of `f`, which must panic.
pub(crate) fn panic_message(f: impl FnOnce() + std::panic::UnwindSafe) -> String {
    match std::panic::catch_unwind(f) {
        Ok(()) => panic!("should have panicked"),
        Err(payload) => payload
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| payload.downcast_ref::<&str>().map(|s| s.to_string()))
            .unwrap_or_default(),
    }
}
