//! Errors of building, training and evaluating a model.

use std::path::PathBuf;

use device::DeviceError;
use graph::GraphError;
use graph::capture::CaptureError;
use ranks::RanksError;
use score::ScoreError;

/// An error that ends the command, reported as a one-line message.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The config describes a program that cannot be built.
    #[error("the model cannot be built: {0}")]
    Graph(GraphError),
    /// The device does not exist, or failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device failed in a node of the step, or while it was captured.
    #[error("{0}")]
    Node(GraphError),
    /// A device that does not complete a step. Nothing waits for it any more, so the process must
    /// not run exit handlers, which would.
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
        /// The first step of the row that ended the run.
        step: u64,
        /// Name of the loss.
        name: String,
        /// Its value.
        value: f32,
        /// Where it comes from: images, and the first non-finite tensor.
        origin: String,
        /// The remedy to try, and the checkpoint to continue from.
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
    /// A transfer from or to S3 that failed.
    #[error("{0}")]
    Remote(String),
    /// The state after the last step cannot be saved.
    #[error("{fault}: nothing is saved after step {step}; last checkpoint: {last}")]
    Unsaved {
        /// The last step.
        step: u64,
        /// The last checkpoint that was saved, or "none".
        last: String,
        /// The file and its fault.
        fault: Box<EngineError>,
    },
    /// Another rank of the run is gone.
    #[error("{0}")]
    RankLost(String),
    /// Another rank of the run has failed.
    #[error("{sentence}")]
    RankFailed {
        /// Which rank failed, where and why.
        sentence: String,
        /// Its exit code.
        code: u8,
    },
    /// Nothing can be run, as all ranks have found; rank 0 reports it.
    #[error("{0}")]
    OfAllRanks(String),
    /// The ranks that this process started have failed, and printed the reason.
    #[error("the ranks ended with exit code {code}")]
    Ranks {
        /// The code of the first rank that did not end because of another.
        code: u8,
    },
    /// A signal requested the end before the work was done.
    #[error("interrupted")]
    Interrupted,
    /// Scores that differ from those that the user expects.
    #[error("not as expected: {0}")]
    Unexpected(String),
    /// The timed runs do not give a score.
    #[error("no score: {0}")]
    NoScore(String),
    /// The user's request is inconsistent.
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
            // A full disk is not an error in the data.
            ScoreError::Write { file: path, source } => EngineError::Io { path, source },
            other => EngineError::Score(other),
        }
    }
}

impl From<GraphError> for EngineError {
    fn from(error: GraphError) -> Self {
        match error {
            // A failing device is not an error in the model.
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
