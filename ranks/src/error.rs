//! Errors between ranks; each message is one sentence for the user.

use thiserror::Error;

use crate::lost::Lost;

/// Why a rank cannot start or go on.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RanksError {
    /// The launcher's variables are incomplete or contradict each other, or rank 0 has no usable
    /// address.
    #[error("{0}")]
    Launcher(String),
    /// The ranks share no token, not all of them came, or this one was refused.
    #[error("{0}")]
    Join(String),
    /// A rank runs with other facts than rank 0: another config, seed or data set.
    #[error("{0}")]
    Differs(String),
    /// The ranks are at different places of the program.
    #[error("{0}")]
    Diverged(String),
    /// Another rank is gone.
    #[error("{0}")]
    Lost(Box<Lost>),
}
