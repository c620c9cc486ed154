//! Errors of communication between ranks; each message is one line for the user.

use thiserror::Error;

use crate::lost::Lost;

/// The reason why a rank cannot start or continue.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RanksError {
    /// The launcher's variables are incomplete or contradict each other, or rank 0 has no usable
    /// address.
    #[error("{0}")]
    Launcher(String),
    /// The ranks have different tokens, some ranks did not join, or this rank was rejected.
    #[error("{0}")]
    Join(String),
    /// A rank runs with a different config, seed or data set than rank 0.
    #[error("{0}")]
    Differs(String),
    /// The ranks are at different points of the program.
    #[error("{0}")]
    Diverged(String),
    /// Another rank was lost.
    #[error("{0}")]
    Lost(Box<Lost>),
}
