//! What an op says of inputs that it cannot take.

/// A fault found when an op is added to a program, before anything runs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpError {
    /// Too few or too many tensors.
    #[error("{op}: expected {expected} {what}, got {got}")]
    Arity {
        /// Name of the op.
        op: &'static str,
        /// Which list: "inputs", "updates" or "outputs".
        what: &'static str,
        /// What the contract asks for.
        expected: String,
        /// What was given.
        got: usize,
    },
    /// A tensor whose shape does not fit.
    #[error("{op}: {tensor} should have shape {expected}, got {got:?}")]
    Shape {
        /// Name of the op.
        op: &'static str,
        /// The tensor's name in the op's contract.
        tensor: &'static str,
        /// What the contract asks for, such as `[N, H, W, C]`.
        expected: String,
        /// The shape given.
        got: Vec<usize>,
    },
    /// A tensor whose element type does not fit.
    #[error("{op}: {tensor} should hold {expected}, got {got}")]
    Type {
        /// Name of the op.
        op: &'static str,
        /// The tensor's name in the op's contract.
        tensor: &'static str,
        /// The type asked for.
        expected: String,
        /// The role and type given.
        got: String,
    },
    /// A parameter of the op that makes no sense.
    #[error("{op}: parameter `{parameter}` should be {expected}, got {got}")]
    Parameter {
        /// Name of the op.
        op: &'static str,
        /// Name of the parameter.
        parameter: &'static str,
        /// What the contract asks for.
        expected: String,
        /// The value given.
        got: String,
    },
}
