//! Names of the state that a program has in addition to its parameters and to the state of a rule.

/// Prefix of the fp32 masters of weights that the device holds as fp16.
pub(crate) const MASTER: &str = "master/";
/// State that the step writes for the host to read: see [`super::RingLayout`].
pub(crate) const RING: &str = "ring";
/// Rows written to the ring.
pub(crate) const RING_STEP: &str = "ring_step";

/// Prefix of the average of a trained parameter.
pub(crate) const AVERAGE: &str = "ema/";
/// Number of updates in the averages.
pub(super) const AVERAGED: &str = "ema_updates";

/// Prefix of the sums that are passed from one pass of a step to the next.
pub(super) const ACCUMULATED: &str = "accumulated/";
/// Number of passes in those sums.
pub(super) const PASSES_HELD: &str = "micro_steps_held";

/// True if a state tensor is unused between steps, so that no checkpoint needs it.
pub fn is_transient(name: &str) -> bool {
    name.starts_with(ACCUMULATED) || name == PASSES_HELD
}
