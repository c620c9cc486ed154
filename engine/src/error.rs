//! What can go wrong while a model is built, trained or evaluated.

use std::path::PathBuf;

use device::DeviceError;
use graph::GraphError;
use graph::capture::CaptureError;

/// A fault that ends the command, told in one sentence.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The config describes a program that cannot be built.
    #[error("the model cannot be built: {0}")]
    Graph(GraphError),
    /// There is no such device, or it failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The config is at fault.
    #[error("{0}")]
    Config(#[from] configs::ConfigError),
    /// The data is at fault.
    #[error("{0}")]
    Data(#[from] dali::DaliError),
    /// Annotations or detections cannot be scored.
    #[error("{0}")]
    Score(#[from] dali::score::ScoreError),
    /// The images cannot be cut into batches.
    #[error("{0}")]
    Order(#[from] dali::order::OrderError),
    /// An image that cannot be decoded.
    #[error("{} {fault}", path.display())]
    Image {
        /// The file.
        path: PathBuf,
        /// What the decoder met.
        fault: dali::decode::DecodeFault,
    },
    /// A weights file is at fault.
    #[error("weights {path}: {reason}")]
    Weights {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A checkpoint is at fault.
    #[error("checkpoint {path}: {reason}")]
    Checkpoint {
        /// The checkpoint's directory.
        path: PathBuf,
        /// What is wrong and what to do.
        reason: String,
    },
    /// The losses are no longer numbers.
    #[error("step {step}: {name} is {value}; {advice}")]
    Diverged {
        /// The step.
        step: u64,
        /// Name of the loss.
        name: String,
        /// Its value.
        value: f32,
        /// What to try.
        advice: String,
    },
    /// A file or directory that cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The user asked for something that does not fit together.
    #[error("{0}")]
    Usage(String),
}

impl From<GraphError> for EngineError {
    fn from(error: GraphError) -> Self {
        match error {
            // A device that fails says nothing of the model.
            GraphError::Device(fault) | GraphError::Capture(CaptureError::Device(fault)) => {
                EngineError::Device(fault)
            }
            other => EngineError::Graph(other),
        }
    }
}
