//! Errors of a program.

use device::DeviceError;
use kernels::OpError;

use crate::capture::CaptureError;

/// An error in a program or in what is bound to it.
#[derive(Debug, thiserror::Error)]
pub enum GraphError {
    /// An op rejected its tensors.
    #[error("in `{part}`: {source}")]
    Op {
        /// Part of the program under construction.
        part: String,
        /// The op's error.
        source: OpError,
    },
    /// An update of a tensor that is not state.
    #[error("in `{part}`: {op} updates `{tensor}`, which is not state")]
    NotState {
        /// Part of the program.
        part: String,
        /// Name of the op.
        op: &'static str,
        /// Name of the tensor.
        tensor: String,
    },
    /// State that is read after its update, or updated twice.
    #[error(
        "state `{tensor}` is used by {reader} without being ordered before its update by {writer}"
    )]
    UnorderedUpdate {
        /// Name of the tensor.
        tensor: String,
        /// The other user.
        reader: String,
        /// The updating node.
        writer: String,
    },
    /// A tensor whose positions the target's arithmetic cannot count.
    #[error(
        "`{tensor}` has {positions} positions ({shape:?}); the limit is {limit}: use fewer or \
         smaller images"
    )]
    TooManyPositions {
        /// Name of the tensor.
        tensor: String,
        /// Its shape.
        shape: Vec<usize>,
        /// Elements over its last dimension.
        positions: usize,
        /// The limit.
        limit: usize,
    },
    /// A loss that does not depend on a parameter.
    #[error("no loss depends on `{0}`: no gradient reaches it")]
    NoGradient(String),
    /// A name that is in neither the program nor the state set.
    #[error("no tensor is named `{0}`")]
    UnknownTensor(String),
    /// State that a program needs but the state set lacks.
    #[error("the program needs state `{0}`, which is neither initialised nor loaded")]
    MissingState(String),
    /// A tensor read as another element type than its own.
    #[error("`{name}` holds {got}, not {expected}")]
    WrongType {
        /// Name of the tensor.
        name: String,
        /// The type asked for.
        expected: String,
        /// Its actual role and type.
        got: String,
    },
    /// State bound under a name with another shape.
    #[error("state `{name}` should be {expected}, got {got}")]
    StateMismatch {
        /// Name of the tensor.
        name: String,
        /// The declared shape.
        expected: String,
        /// The shape found.
        got: String,
    },
    /// An arena that the system has no memory for.
    #[error("the system does not give {} GiB of memory: {reason}", .bytes >> 30)]
    NoMemory {
        /// Bytes of the plan.
        bytes: usize,
        /// The system's reason.
        reason: String,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A step that cannot be captured.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// A node whose op has no kernels.
    #[error("{0} has no CUDA kernels: it runs only on the CPU")]
    NoLaunches(String),
    /// The device failed in a node.
    #[error("{node}: {source}")]
    Node {
        /// Name of the node, or of the first or last launch of a step.
        node: String,
        /// The error.
        source: Box<GraphError>,
    },
    /// A step that does not finish.
    #[error("the device has not finished step {step} after {seconds} s")]
    Hangs {
        /// Number of the step.
        step: u32,
        /// How long the host waited.
        seconds: u64,
    },
}
