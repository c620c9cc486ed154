//! What can be wrong with a program.

use device::DeviceError;
use kernels::OpError;

use crate::capture::CaptureError;

/// A fault in a program or in what is bound to it.
#[derive(Debug, thiserror::Error)]
pub enum GraphError {
    /// An op refused its tensors.
    #[error("in `{part}`: {source}")]
    Op {
        /// Part of the program under construction.
        part: String,
        /// What the op says.
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
    /// A loss that does not depend on a parameter.
    #[error("no loss depends on `{0}`: no gradient reaches it")]
    NoGradient(String),
    /// A name that the program or the state set does not hold.
    #[error("no tensor is named `{0}`")]
    UnknownTensor(String),
    /// State that a program needs and the state set does not hold.
    #[error("the program needs state `{0}`, which is neither initialised nor loaded")]
    MissingState(String),
    /// A tensor read as elements that it does not hold.
    #[error("`{name}` holds {got}, not {expected}")]
    WrongType {
        /// Name of the tensor.
        name: String,
        /// The type asked for.
        expected: String,
        /// Its role and type.
        got: String,
    },
    /// State bound under a name with another shape.
    #[error("state `{name}` should be {expected}, got {got}")]
    StateMismatch {
        /// Name of the tensor.
        name: String,
        /// What the program declares.
        expected: String,
        /// What was found.
        got: String,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A step that cannot be captured.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// A node whose op has no kernels.
    #[error("{0} has no CUDA kernels: it runs on the CPU alone")]
    NoLaunches(String),
    /// The device failed at a node.
    #[error("{node}: {source}")]
    Node {
        /// Name of the node, or of the launch at either end of a step.
        node: String,
        /// What went wrong.
        source: Box<GraphError>,
    },
    /// A step that does not end.
    #[error("the device has not finished step {step} after {seconds} s")]
    Hangs {
        /// Number of the step.
        step: u32,
        /// How long the host waited.
        seconds: u64,
    },
}
