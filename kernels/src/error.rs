//! Errors of ops that reject their inputs.

/// An error found when an op is added to a program, before anything runs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpError {
    /// Too few or too many tensors.
    #[error("{op}: expected {expected} {what}, got {got}")]
    Arity {
        /// Name of the op.
        op: &'static str,
        /// Which list: "inputs", "updates" or "outputs".
        what: &'static str,
        /// The expected number.
        expected: String,
        /// The number given.
        got: usize,
    },
    /// A tensor of the wrong shape.
    #[error("{op}: {tensor} should have shape {expected}, got {got:?}")]
    Shape {
        /// Name of the op.
        op: &'static str,
        /// The tensor's name in the op's contract.
        tensor: &'static str,
        /// The expected shape, such as `[N, H, W, C]`.
        expected: String,
        /// The shape given.
        got: Vec<usize>,
    },
    /// A tensor of the wrong element type.
    #[error("{op}: {tensor} should hold {expected}, got {got}")]
    Type {
        /// Name of the op.
        op: &'static str,
        /// The tensor's name in the op's contract.
        tensor: &'static str,
        /// The expected type.
        expected: String,
        /// The role and type given.
        got: String,
    },
    /// An invalid parameter of the op.
    #[error("{op}: parameter `{parameter}` should be {expected}, got {got}")]
    Parameter {
        /// Name of the op.
        op: &'static str,
        /// Name of the parameter.
        parameter: &'static str,
        /// The expected value.
        expected: String,
        /// The value given.
        got: String,
    },
}
