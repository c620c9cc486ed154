//! Running steps: synchronously on the CPU, up to two ahead of the host on a device.

mod cpu;
mod device;

use std::fmt::Debug;

use graph::capture::CapturedGraph;
use graph::{DeviceExecutor, GraphError};
use kernels::ops::control_step::Control;

use super::feed::Batch;
use crate::error::EngineError;
use crate::runtime::ModelState;

pub(super) use cpu::CpuSteps;
pub(super) use device::DeviceSteps;

/// Results read back from one step.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Measured {
    pub(super) losses: Vec<(&'static str, f32)>,
    pub(super) lr: f32,
    pub(super) loss_scale: f32,
    /// Norm of the gradients without the loss scale.
    pub(super) grad_norm: f32,
    pub(super) applied: bool,
}

/// Submits a step of a program to a device, as [`DeviceExecutor::submit`] does; it may inspect or
/// time the step, and runs exactly one.
pub type Submit<'a> = dyn FnMut(&mut DeviceExecutor, usize) -> Result<(), GraphError> + 'a;

/// Runs training steps in order.
pub(super) trait Steps: Debug {
    /// Steps that may be in flight before the oldest is measured.
    fn depth(&self) -> usize;

    /// Begins a micro-step. Returns a batch whose slot may be refilled, if there is one.
    fn begin(&mut self, batch: Batch, state: &mut ModelState)
    -> Result<Option<Batch>, EngineError>;

    /// Begins a micro-step through the caller's `submit`.
    ///
    /// # Errors
    /// As for [`Self::begin`]; [`EngineError::Usage`] on the CPU, which has no other way.
    fn begin_by(
        &mut self,
        batch: Batch,
        submit: &mut Submit<'_>,
    ) -> Result<Option<Batch>, EngineError> {
        let _ = (batch, submit);
        Err(EngineError::Usage("steps on the CPU are not given launch by launch".into()))
    }

    /// Waits for the oldest step that has not been measured yet, and returns it.
    fn measure(&mut self) -> Result<Measured, EngineError>;

    /// Bytes of activations, gradients, inputs and scratch.
    fn bytes(&self) -> usize;

    /// Bytes of host memory that a device accesses, without slots.
    fn pinned_bytes(&self) -> usize {
        0
    }

    /// A device's captured graphs, one per program.
    fn graphs(&self) -> &[CapturedGraph] {
        &[]
    }

    /// A device's executor.
    fn device_executor(&mut self) -> Option<&mut DeviceExecutor> {
        None
    }

    /// The CPU's executors, whose nodes can be timed one by one.
    fn cpu_executors(&mut self) -> &mut [graph::CpuExecutor] {
        &mut []
    }
}

/// The losses of one micro-step, and what they weigh.
pub(super) type MicroLosses = (f32, Vec<(&'static str, f32)>);

/// Combines the losses of the micro-steps with the last one's record of the update.
pub(super) fn measured(
    micro_losses: &[MicroLosses],
    control: Control,
    total_norm: f32,
) -> Measured {
    let parts = micro_losses.len() as f32;
    // A weight of 1 leaves the bits as they are.
    let weighted = |i: usize| micro_losses.iter().map(move |(weight, of)| weight * of[i].1);
    let mean = |i: usize| weighted(i).sum::<f32>() / parts;
    let names = micro_losses[0].1.iter().map(|(name, _)| *name);
    let losses = names.enumerate().map(|(i, name)| (name, mean(i))).collect();
    let grad_norm = total_norm / (control.loss_scale * parts);
    Measured {
        losses,
        lr: control.lr,
        loss_scale: control.loss_scale,
        grad_norm,
        applied: control.is_applied(),
    }
}
