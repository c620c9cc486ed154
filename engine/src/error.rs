//! Errors of building, training and evaluating a model.

use std::path::PathBuf;

use device::DeviceError;
use graph::GraphError;
use graph::capture::CaptureError;
use ranks::RanksError;
use score::ScoreError;

/// An error that ends a command, reported in one line.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The program that the config describes cannot be built.
    #[error("the model cannot be built: {0}")]
    Graph(GraphError),
    /// There is no usable device, or it failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device failed in a node of the step, or during graph capture.
    #[error("{0}")]
    Node(GraphError),
    /// The device does not complete a step. The process must end without running exit handlers,
    /// which would wait for the device.
    #[error("{0}: the GPU hangs; check nvidia-smi, and dmesg for an Xid")]
    Hangs(GraphError),
    /// A bad config.
    #[error("{0}")]
    Config(#[from] crate::config::ConfigError),
    /// Bad data.
    #[error("{0}")]
    Data(#[from] dali::DaliError),
    /// Annotations or detections cannot be scored.
    #[error("{0}")]
    Score(ScoreError),
    /// The images cannot be divided into batches.
    #[error("{0}")]
    Order(#[from] dali::order::OrderError),
    /// An image that cannot be decoded.
    #[error("{} {fault}", path.display())]
    Image {
        /// The file.
        path: PathBuf,
        /// The decoder's error.
        fault: dali::decode::DecodeFault,
    },
    /// A bad weights file.
    #[error("weights {path}: {reason}")]
    Weights {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A bad checkpoint.
    #[error("checkpoint {path}: {reason}")]
    Checkpoint {
        /// The checkpoint's directory.
        path: PathBuf,
        /// The fault and how to fix it.
        reason: String,
    },
    /// A bad replay file.
    #[error("replay {path}: {reason}")]
    Replay {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The losses are non-finite, or every step is skipped.
    #[error("step {step}: {name} is {value}{origin}; {advice}")]
    Diverged {
        /// The first of the consecutive bad steps that ended the run.
        step: u64,
        /// Name of the loss.
        name: String,
        /// Its value.
        value: f32,
        /// The images of the step, and the first non-finite tensor.
        origin: String,
        /// A possible fix, and the checkpoint to resume from.
        advice: String,
    },
    /// A file or directory that cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The I/O error.
        source: std::io::Error,
    },
    /// A failed transfer from or to S3.
    #[error("{0}")]
    Remote(String),
    /// The state after the last step cannot be saved.
    #[error("{fault}: the state after step {step} could not be saved; last checkpoint: {last}")]
    Unsaved {
        /// The last step.
        step: u64,
        /// The last checkpoint that was saved, or "none".
        last: String,
        /// The error, which names the file.
        fault: Box<EngineError>,
    },
    /// Another rank of the run was lost.
    #[error("{0}")]
    RankLost(String),
    /// Another rank of the run has reported an error.
    #[error("{sentence}")]
    RankFailed {
        /// A message that names the failed rank, its machine, and its error.
        sentence: String,
        /// Exit code of that rank.
        code: u8,
    },
    /// An error that all ranks found at the same point; only rank 0 prints it.
    #[error("{0}")]
    OfAllRanks(String),
    /// Ranks have failed, after printing the reason.
    #[error("the ranks ended with exit code {code}")]
    Ranks {
        /// Exit code of the first rank whose failure was not caused by another rank.
        code: u8,
    },
    /// The command was interrupted by a signal before it was done.
    #[error("interrupted")]
    Interrupted,
    /// Scores differ from the expected ones (`onegraph eval --expect`).
    #[error("not as expected: {0}")]
    Unexpected(String),
    /// The timed runs do not give a valid MLPerf score.
    #[error("no score: {0}")]
    NoScore(String),
    /// The arguments, the config, or the given files do not fit together.
    #[error("{0}")]
    Usage(String),
}

impl From<RanksError> for EngineError {
    fn from(error: RanksError) -> Self {
        match error {
            RanksError::Lost(lost) => {
                let sentence = lost.to_string();
                match lost.code {
                    Some(code) => EngineError::RankFailed { sentence, code },
                    None => EngineError::RankLost(sentence),
                }
            }
            RanksError::Differs(sentence) => EngineError::OfAllRanks(sentence),
            other => EngineError::Usage(other.to_string()),
        }
    }
}

impl From<ScoreError> for EngineError {
    fn from(error: ScoreError) -> Self {
        match error {
            // An I/O error, such as a full disk, is not reported as an error in the data.
            ScoreError::Write { file: path, source } => EngineError::Io { path, source },
            other => EngineError::Score(other),
        }
    }
}

impl From<GraphError> for EngineError {
    fn from(error: GraphError) -> Self {
        match error {
            // A device error is not reported as an error in the model.
            GraphError::Device(fault) | GraphError::Capture(CaptureError::Device(fault)) => {
                EngineError::Device(fault)
            }
            work @ (GraphError::Node { .. } | GraphError::Capture(CaptureError::Work { .. }))
                if is_of_device(&work) =>
            {
                EngineError::Node(work)
            }
            hangs @ GraphError::Hangs { .. } => EngineError::Hangs(hangs),
            other => EngineError::Graph(other),
        }
    }
}

/// True if the device caused the failure.
fn is_of_device(error: &GraphError) -> bool {
    match error {
        GraphError::Device(_) => true,
        GraphError::Capture(CaptureError::Work { .. } | CaptureError::Device(_)) => true,
        GraphError::Node { source, .. } => is_of_device(source),
        _ => false,
    }
}
