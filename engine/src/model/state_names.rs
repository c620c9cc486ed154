//! Names of a program's state tensors, except parameters and the state of an update rule.

/// Prefix of a device's fp32 master weights; kernels read copies of these in the device's
/// precision.
pub(crate) const MASTER: &str = "master/";
/// Ring buffer to which steps write results for the host: see [`super::RingLayout`].
pub(crate) const RING: &str = "ring";
/// Number of rows written to the ring.
pub(crate) const RING_STEP: &str = "ring_step";

/// Prefix of averages of trained parameters.
pub(crate) const AVERAGE: &str = "ema/";
/// Number of updates included in the averages.
pub(super) const AVERAGED: &str = "ema_updates";

/// Prefix of sums carried from one pass of a step to the next.
pub(super) const ACCUMULATED: &str = "accumulated/";
/// Number of passes included in the sums.
pub(super) const PASSES_HELD: &str = "micro_steps_held";

/// True if a state tensor is unused between steps, so that no checkpoint needs it.
pub fn is_transient(name: &str) -> bool {
    name.starts_with(ACCUMULATED) || name == PASSES_HELD
}
