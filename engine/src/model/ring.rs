//! The results that a step on a device writes to host memory: each pass writes one row of a ring
//! buffer in mapped memory.

use std::sync::Arc;

use graph::{GraphError, TensorId};
use kernels::ops::control_step::Control;
use kernels::ops::parameter_update::STATS;
use kernels::ops::publish::Publish;
use kernels::{Role, TensorDesc};

use super::net::{Loss, Net};
use super::state_names::{RING, RING_STEP};

/// Minimum number of rows, larger than the number of steps in flight.
const MIN_ROWS: usize = 8;

/// Layout of a row: step number, losses, number of stop requests if all-reduced, counts for
/// accuracies if requested, [`Control`], gradient norms (the total last), and statistics of the
/// parameters if requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingLayout {
    /// Rows.
    pub rows: usize,
    /// Words per row.
    pub width: usize,
    losses: Vec<&'static str>,
    /// Length of [`Row::counts`].
    counts: usize,
    /// Number of trained parameters.
    parameters: usize,
    /// True if the losses are all-reduced and followed by the number of stop requests.
    pub(crate) is_summed: bool,
}

/// The contents of one row.
#[derive(Debug, Clone)]
pub struct Row {
    /// Losses by name.
    pub losses: Vec<(&'static str, f32)>,
    /// Number of ranks that were requested to stop.
    pub stop: f32,
    /// Counts from which accuracies are computed, see [`kernels::ops::accuracies`]; empty unless
    /// requested.
    pub counts: Vec<f32>,
    /// The step's control values.
    pub control: Control,
    /// Norm of each scaled gradient, then of all together.
    pub norms: Vec<f32>,
    /// Statistics of the parameters, see [`kernels::ops::parameter_update`]; empty unless
    /// requested.
    pub stats: Vec<f32>,
}

impl RingLayout {
    /// Splits a row into its values.
    pub fn split(&self, row: &[f32]) -> Row {
        let (losses, rest) = row[1..].split_at(self.losses.len());
        let losses = self.losses.iter().copied().zip(losses.iter().copied()).collect();
        let (stop, rest) = match self.is_summed {
            true => (rest[0], &rest[1..]),
            false => (0.0, rest),
        };
        let (counts, rest) = rest.split_at(self.counts);
        let (control, rest) = rest.split_at(Control::LEN);
        let (norms, stats) = rest.split_at(self.parameters + 1);
        let [counts, norms, stats] = [counts, norms, stats].map(<[f32]>::to_vec);
        Row { losses, stop, counts, control: Control::read(control), norms, stats }
    }
}

/// The tensors that a step writes to host memory in addition to the losses.
#[derive(Debug)]
pub(super) struct Published<'a> {
    /// All-reduced losses and stop requests, instead of the losses.
    pub(super) summed: Option<TensorId>,
    /// Counts from which accuracies are computed, if requested.
    pub(super) counts: Option<TensorId>,
    /// In the last pass: control, norms and, if requested, statistics.
    pub(super) results: &'a [TensorId],
}

/// Adds the node that writes the losses and `Published` to host memory, for `parameters` trained
/// parameters.
pub(super) fn publish(
    net: &mut Net<'_>,
    losses: &[Loss],
    Published { summed, counts, results }: Published<'_>,
    parameters: usize,
) -> Result<RingLayout, GraphError> {
    let is_summed = summed.is_some();
    let published = match summed {
        Some(sum) => vec![sum],
        None => losses.iter().map(|loss| loss.value).collect(),
    };
    let values: Vec<TensorId> = published.iter().chain(&counts).chain(results).copied().collect();
    let stats = if net.spec.config.train.log_parameters { STATS * parameters } else { 0 };
    let norms = parameters + 1;
    let counts = counts.map_or(0, |counts| net.program.desc(counts).len());
    let of_pass = losses.len() + usize::from(is_summed) + counts;
    let width = 1 + of_pass + Control::LEN + norms + stats;
    // A power of two, so that the row order is preserved when the step counter wraps around.
    let rows = MIN_ROWS.max(2 * net.spec.part.division.passes).next_power_of_two();
    let ring = net.program.state(RING, TensorDesc::new(Role::Scalar, &[rows, width]));
    let step = net.program.state(RING_STEP, TensorDesc::new(Role::Index, &[1]));
    net.program.add(Arc::new(Publish), &values, &[ring, step])?;
    Ok(RingLayout {
        rows,
        width,
        losses: losses.iter().map(|loss| loss.name).collect(),
        counts,
        parameters,
        is_summed,
    })
}
