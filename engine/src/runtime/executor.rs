//! Runs a single program synchronously on the CPU or a device, for evaluation and detection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dali::loader::SlotLayout;
use device::{DevicePtr, Target};
use graph::exec::device::Prepared;
use graph::{CpuExecutor, DeviceExecutor, Program};
use kernels::cpu::HostTensor;

use super::machine::{Machine, gib};
use super::{Backend, ModelState, Slot, copy_inputs, same_layout};
use crate::error::EngineError;

/// The inputs of a run.
#[derive(Debug)]
pub enum Inputs<'a> {
    /// A slot.
    Slot {
        /// The batch.
        slot: &'a Slot,
        /// Device memory to which the inputs are also copied, for [`Inputs::Kept`].
        keep: Option<DevicePtr>,
    },
    /// Device memory with the copied inputs of an earlier batch.
    Kept(DevicePtr),
}

/// Runs a program, and waits until it is done.
#[derive(Debug)]
pub enum Executor {
    /// On the CPU.
    Cpu(Box<CpuExecutor>),
    /// On a device, as a captured graph.
    Device(Box<DeviceExecutor>),
}

impl Executor {
    /// Plans a program whose inputs come from slots with this layout. On a device, it is planned in
    /// the precision of `state` and captured as a graph.
    ///
    /// # Errors
    /// If the state belongs to a different model, or the plan needs more than the free memory;
    /// device errors.
    pub fn new(
        program: Program,
        layout: &SlotLayout,
        backend: &Backend,
        state: &mut ModelState,
    ) -> Result<Self, EngineError> {
        let program = Arc::new(program);
        match (backend, state.memory().cloned()) {
            (Backend::Device(device), Some(memory)) => {
                let gpu = device.gpu().in_precision(memory.precision());
                let prepared = Prepared::new(program, Target::Gpu(gpu))?;
                same_layout(&prepared, layout);
                let arena = state.arena(device, prepared.plan.arena_bytes())?;
                let executor = DeviceExecutor::new(device.clone(), vec![prepared], arena, &memory)?;
                Ok(Executor::Device(Box::new(executor)))
            }
            _ => {
                let prepared = Prepared::new(program, Target::Cpu)?;
                let arena = state.cpu_arena().clone();
                let there = arena.bytes();
                check_fit(prepared.plan.arena_bytes().saturating_sub(there), &prepared)?;
                let executor = CpuExecutor::in_arena(prepared, state.host_mut(), &arena)?;
                let executor = executor.taking(state.gemm_settings());
                Ok(Executor::Cpu(Box::new(executor)))
            }
        }
    }

    /// The program.
    pub fn program(&self) -> &Program {
        match self {
            Executor::Cpu(executor) => executor.program(),
            Executor::Device(executor) => &executor.programs()[0].program,
        }
    }

    /// Runs the program once on a batch. The slot can be reused afterwards. On the CPU, setting
    /// `interrupted` ends the run early.
    ///
    /// # Errors
    /// An array that is not an input of the program; a device error; [`EngineError::Interrupted`].
    ///
    /// # Panics
    /// If the inputs do not fit the backend.
    pub fn run(
        &mut self,
        inputs: Inputs<'_>,
        state: &mut ModelState,
        interrupted: &AtomicBool,
    ) -> Result<(), EngineError> {
        let go_on = || !interrupted.load(Ordering::Relaxed);
        match self {
            Executor::Cpu(executor) => {
                let Inputs::Slot { slot, keep: None } = inputs else {
                    panic!("the CPU keeps no inputs")
                };
                copy_inputs(executor, slot)?;
                let state = state.host_mut();
                // Runs inside the thread pool, so that parallel loops of ops start without
                // switching threads.
                if !rayon::scope(|_| executor.run_while(state, go_on)) {
                    return Err(EngineError::Interrupted);
                }
            }
            Executor::Device(executor) => {
                match inputs {
                    Inputs::Slot { slot, keep } => {
                        executor.upload_inputs(0, slot.memory().pinned())?;
                        keep.map_or(Ok(()), |memory| executor.keep_inputs(0, memory))?;
                    }
                    Inputs::Kept(memory) => executor.copy_kept_inputs(0, memory)?,
                }
                let step = executor.submit(0)?;
                executor.until_done(step)?;
            }
        }
        Ok(())
    }

    /// Copies an output of the last run. It is lost when another program runs on the same state.
    ///
    /// # Errors
    /// [`graph::GraphError::UnknownTensor`]; device errors.
    pub fn read(&self, name: &str) -> Result<HostTensor, EngineError> {
        Ok(match self {
            Executor::Cpu(executor) => executor.read(name)?,
            Executor::Device(executor) => executor.read(0, name)?,
        })
    }
}

/// Number of copies of a program's outputs on the host: the program's, and those of batches whose
/// masks are not yet pasted.
const OUTPUTS: usize = 7;

/// Size of all copies of a program's outputs on the host, in bytes.
pub(crate) fn output_bytes(prepared: &Prepared) -> usize {
    let kept = prepared.program.kept().iter();
    OUTPUTS * kept.map(|id| prepared.program.desc(*id).cpu_bytes()).sum::<usize>()
}

/// Checks that the free memory suffices for a detection pass, whose arena needs `more` additional
/// bytes.
fn check_fit(more: usize, prepared: &Prepared) -> Result<(), EngineError> {
    let needed = more + prepared.input_bytes() + output_bytes(prepared);
    let Some((_, free)) = Machine::here().memory else { return Ok(()) };
    if needed as u64 <= free {
        return Ok(());
    }
    Err(EngineError::Usage(format!(
        "detection on one batch needs {:.2} GiB, but this machine has only {:.2} GiB free: lower \
         eval.batch_size, model.detections.per_image or input.max_size",
        gib(needed),
        gib(free as usize)
    )))
}
