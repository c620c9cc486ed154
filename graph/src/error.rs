//! Errors of building, planning and running programs.

use device::DeviceError;
use kernels::OpError;

use crate::capture::CaptureError;

/// An error of a program, or of the state or device that it runs with.
#[derive(Debug, thiserror::Error)]
pub enum GraphError {
    /// An op rejected its tensors.
    #[error("in `{part}`: {source}")]
    Op {
        /// The model part to which the op was being added.
        part: String,
        /// The op's error.
        source: OpError,
    },
    /// An op updates a tensor that is not state.
    #[error("in `{part}`: {op} updates `{tensor}`, which is not state")]
    NotState {
        /// The model part to which the op was being added.
        part: String,
        /// Name of the op.
        op: &'static str,
        /// Name of the tensor.
        tensor: String,
    },
    /// State is read after its update, or updated twice.
    #[error(
        "state `{tensor}` is used by {reader} without being ordered before its update by {writer}"
    )]
    UnorderedUpdate {
        /// Name of the tensor.
        tensor: String,
        /// The node that reads the state or also updates it.
        reader: String,
        /// The updating node.
        writer: String,
    },
    /// A tensor has more positions than the target supports.
    #[error(
        "`{tensor}` has {positions} positions ({shape:?}); the limit is {limit}: use fewer or \
         smaller images"
    )]
    TooManyPositions {
        /// Name of the tensor.
        tensor: String,
        /// Shape of the tensor.
        shape: Vec<usize>,
        /// Number of elements divided by the last dimension.
        positions: usize,
        /// The limit.
        limit: usize,
    },
    /// No loss depends on the parameter.
    #[error("no loss depends on `{0}`: no gradient reaches it")]
    NoGradient(String),
    /// The ops that read a tensor have different row counts: its gradient is not defined in all
    /// rows that one of them uses.
    #[error(
        "the ops that read `{0}` have different row counts, or only some have one: give all the \
         same"
    )]
    DifferentCounts(String),
    /// The name is in neither the program nor the state set.
    #[error("no tensor is named `{0}`")]
    UnknownTensor(String),
    /// The program needs state that the state set lacks.
    #[error("the program needs state `{0}`, which is neither initialised nor loaded")]
    MissingState(String),
    /// A tensor was read with the wrong element type.
    #[error("`{name}` holds {got}, not {expected}")]
    WrongType {
        /// Name of the tensor.
        name: String,
        /// The requested type.
        expected: String,
        /// Actual role and type of the tensor.
        got: String,
    },
    /// The state of this name has a different shape in the state set.
    #[error("state `{name}` should be {expected}, got {got}")]
    StateMismatch {
        /// Name of the tensor.
        name: String,
        /// The declared shape.
        expected: String,
        /// The shape in the state set.
        got: String,
    },
    /// The system lacks memory for the arena.
    #[error("cannot allocate {} GiB of memory: {reason}", .bytes >> 30)]
    NoMemory {
        /// Bytes that the plan needs.
        bytes: usize,
        /// The operating system's error.
        reason: String,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The step cannot be captured.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The op of the node has no kernels.
    #[error("{0} has no CUDA kernels: it runs only on the CPU")]
    NoLaunches(String),
    /// The device failed while running a node.
    #[error("{node}: {source}")]
    Node {
        /// Name of the node, or of the launch that begins or ends a step.
        node: String,
        /// The error.
        source: Box<GraphError>,
    },
    /// A step does not complete.
    #[error("the device has not finished step {step} after {seconds} s")]
    Hangs {
        /// Number of the step.
        step: u32,
        /// Seconds for which the host waited.
        seconds: u64,
    },
}
