//! Runs steps: synchronously on the CPU, up to two in flight on a device.

mod cpu;
mod device;

use std::fmt::Debug;

use graph::capture::CapturedGraph;
use graph::{DeviceExecutor, GraphError, Program};
use kernels::ops::control_step::Control;
use kernels::ops::parameter_update::STATS;

use super::feed::Batch;
use crate::error::EngineError;
use crate::metrics::ParameterStats;
use crate::model::{LOGGED_ACTIVATION, LOGGED_COUNT};
use crate::names::matches;
use crate::runtime::{ModelState, Slot};

pub(super) use cpu::CpuSteps;
pub(super) use device::DeviceSteps;

/// Results of one step, read on the host.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Measured {
    pub(super) losses: Losses,
    pub(super) lr: f32,
    pub(super) loss_scale: f32,
    /// Norm of the gradients without the loss scale.
    pub(super) grad_norm: f32,
    pub(super) applied: bool,
    /// True if a rank was requested to stop.
    pub(super) stop: bool,
    /// Statistics of each trained parameter, if requested.
    pub(super) parameters: Vec<ParameterStats>,
    /// Counts of correct predictions over the passes of this rank, if requested.
    pub(super) counts: Vec<f64>,
}

/// Submits one run of a program to a device, like [`DeviceExecutor::submit`], and may inspect or
/// time it. It must run the program exactly once.
pub type Submit<'a> = dyn FnMut(&mut DeviceExecutor, usize) -> Result<(), GraphError> + 'a;

/// Runs training steps in order.
pub(super) trait Steps: Debug + Send {
    /// Maximum number of steps in flight.
    fn depth(&self) -> usize;

    /// Starts a pass. Returns an earlier batch whose slot can be refilled, if there is one.
    fn begin(&mut self, batch: Batch, state: &mut ModelState)
    -> Result<Option<Batch>, EngineError>;

    /// Starts a pass through the caller's `submit`.
    ///
    /// # Errors
    /// As for [`Self::begin`]; [`EngineError::Usage`] on the CPU, where this is not supported.
    fn begin_by(
        &mut self,
        batch: Batch,
        submit: &mut Submit<'_>,
    ) -> Result<Option<Batch>, EngineError> {
        let _ = (batch, submit);
        Err(EngineError::Usage("single launches can only be submitted on a device".into()))
    }

    /// Runs every program of a device once on this slot, and waits; does nothing on the CPU.
    ///
    /// # Errors
    /// Device errors.
    fn warm_up(&mut self, slot: &Slot) -> Result<(), EngineError> {
        let _ = slot;
        Ok(())
    }

    /// Waits for the oldest step in flight, and returns its results.
    fn measure(&mut self) -> Result<Measured, EngineError>;

    /// Float outputs of the last pass named `prefix` plus a name that matches `pattern`, listed by
    /// that name, without rows past their count. Waits for the pass.
    ///
    /// # Errors
    /// Device errors.
    fn kept(&self, prefix: &str, pattern: &str) -> Result<Vec<(String, Vec<f32>)>, EngineError>;

    /// Bytes of activations, gradients, inputs and scratch.
    fn bytes(&self) -> usize;

    /// Bytes of host memory that a device accesses, except slots.
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

    /// The CPU's executors, for timing single nodes.
    fn cpu_executors(&mut self) -> &mut [graph::CpuExecutor] {
        &mut []
    }
}

/// Losses by name.
pub(super) type Losses = Vec<(&'static str, f32)>;

/// Assembles the measurements of a step. `losses` are already means over the step; `norms` and
/// `stats` (see [`kernels::ops::parameter_update`]) refer to the gradient sum, which is `divisor`
/// times the mean.
pub(super) fn measured(
    losses: Losses,
    control: Control,
    norms: &[f32],
    stats: &[f32],
    divisor: usize,
    stop: bool,
) -> Measured {
    let scale = control.loss_scale * divisor as f32;
    let grad_norm = norms[norms.len() - 1] / scale;
    let (stats, _) = stats.as_chunks::<STATS>();
    let of = |(&[weight_mean, weight_norm, mean], norm): (&[f32; STATS], &f32)| ParameterStats {
        weight_mean,
        weight_norm,
        gradient_mean: mean / scale,
        gradient_norm: norm / scale,
    };
    let parameters = stats.iter().zip(norms).map(of).collect();
    let Control { lr, loss_scale, .. } = control;
    let (applied, counts) = (control.is_applied(), vec![]);
    Measured { losses, lr, loss_scale, grad_norm, applied, stop, parameters, counts }
}

/// The names of a program's outputs with `prefix`, without the prefix, if they match `pattern`.
fn kept_names<'a>(program: &'a Program, prefix: &str, pattern: &str) -> Vec<&'a str> {
    let names = program.kept_names().into_iter();
    let names = names.filter_map(|(name, _)| name.strip_prefix(prefix));
    names.filter(|name| matches(pattern, name)).collect()
}

/// The values of the output [`LOGGED_ACTIVATION`] plus `name` in rows in use; `count` reads an
/// output with a number of rows.
fn rows_in_use<E>(
    program: &Program,
    prefix: &str,
    name: &str,
    mut values: Vec<f32>,
    count: impl FnOnce(&str) -> Result<i32, E>,
) -> Result<Vec<f32>, E> {
    let output = format!("{LOGGED_COUNT}{name}");
    let (tensor, has_count) = (program.find(&format!("{prefix}{name}")), program.find(&output));
    if let (LOGGED_ACTIVATION, Some(tensor), Some(_)) = (prefix, tensor, has_count) {
        let rows = program.desc(tensor).dim(0);
        let used = usize::try_from(count(&output)?).unwrap_or(0).min(rows);
        values.truncate(values.len() / rows.max(1) * used);
    }
    Ok(values)
}

/// Adds the counts of a pass to the counts of earlier passes.
fn add_counts(counts: &mut Vec<f64>, of_pass: impl ExactSizeIterator<Item = f64>) {
    counts.resize(of_pass.len(), 0.0);
    counts.iter_mut().zip(of_pass).for_each(|(count, of_pass)| *count += of_pass);
}
