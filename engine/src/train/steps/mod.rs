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
    pub(super) losses: Losses,
    pub(super) lr: f32,
    pub(super) loss_scale: f32,
    /// Norm of the gradients without the loss scale.
    pub(super) grad_norm: f32,
    pub(super) applied: bool,
    /// Whether a rank was asked to stop.
    pub(super) stop: bool,
}

/// Submits a step of a program to a device, as [`DeviceExecutor::submit`] does; it may inspect or
/// time the step, and runs exactly one.
pub type Submit<'a> = dyn FnMut(&mut DeviceExecutor, usize) -> Result<(), GraphError> + 'a;

/// Runs training steps in order.
pub(super) trait Steps: Debug {
    /// Steps that may be in flight before the oldest is measured.
    fn depth(&self) -> usize;

    /// Begins a pass. Returns a batch whose slot may be refilled, if there is one.
    fn begin(&mut self, batch: Batch, state: &mut ModelState)
    -> Result<Option<Batch>, EngineError>;

    /// Begins a pass through the caller's `submit`.
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

/// Losses by name.
pub(super) type Losses = Vec<(&'static str, f32)>;

/// What a step did: `losses` are means over it, `total_norm` is that of the sum of the gradients,
/// which is `divisor` times their mean.
pub(super) fn measured(
    losses: Losses,
    control: Control,
    total_norm: f32,
    divisor: usize,
    stop: bool,
) -> Measured {
    let grad_norm = total_norm / (control.loss_scale * divisor as f32);
    let Control { lr, loss_scale, .. } = control;
    Measured { losses, lr, loss_scale, grad_norm, applied: control.is_applied(), stop }
}
