//! Names of the state that a program for a device has beside its parameters.

/// Prefix of the fp32 masters of weights that the device holds as fp16.
pub(crate) const MASTER: &str = "master/";
/// State that the step writes for the host to read: see [`super::RingLayout`].
pub(crate) const RING: &str = "ring";
/// Rows written to the ring.
pub(crate) const RING_STEP: &str = "ring_step";
