//! What a step on a device publishes to the host: one row of a ring in mapped memory.

use std::sync::Arc;

use graph::{GraphError, TensorId};
use kernels::ops::control_step::Control;
use kernels::ops::publish::Publish;
use kernels::{Role, TensorDesc};

use super::net::{Loss, Net};
use super::state_names::{RING, RING_STEP};

/// Minimum number of rows: more than are ever in flight.
const MIN_ROWS: usize = 8;

/// Layout of a row. Word 0 is the step number, then come the losses, [`Control`], and the gradient
/// norms, the total last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingLayout {
    /// Rows.
    pub rows: usize,
    /// Words per row.
    pub width: usize,
    losses: Vec<&'static str>,
}

impl RingLayout {
    /// The contents of one row: losses by name, the step's control, and the total norm of the
    /// scaled gradients.
    pub fn split(&self, row: &[f32]) -> (Vec<(&'static str, f32)>, Control, f32) {
        let values = &row[1..];
        let losses = self.losses.iter().copied().zip(values.iter().copied()).collect();
        let control = Control::read(&values[self.losses.len()..][..Control::LEN]);
        (losses, control, values[values.len() - 1])
    }
}

/// Adds the node that publishes losses and, for the last micro-step, `results`: control and norms,
/// `num_norms` of them.
pub(super) fn publish(
    net: &mut Net<'_>,
    losses: &[Loss],
    results: &[TensorId],
    num_norms: usize,
) -> Result<RingLayout, GraphError> {
    let values: Vec<TensorId> = losses.iter().map(|(_, t)| t).chain(results).copied().collect();
    let width = 1 + losses.len() + Control::LEN + num_norms;
    // A power of two, so rows stay consecutive when the step counter wraps.
    let rows = MIN_ROWS.max(2 * net.spec.part.division.passes).next_power_of_two();
    let ring = net.program.state(RING, TensorDesc::new(Role::Scalar, &[rows, width]));
    let step = net.program.state(RING_STEP, TensorDesc::new(Role::Index, &[1]));
    net.program.add(Arc::new(Publish), &values, &[ring, step])?;
    Ok(RingLayout { rows, width, losses: losses.iter().map(|(name, _)| *name).collect() })
}
