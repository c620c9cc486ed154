//! The options for joining a group.

use std::sync::Arc;
use std::time::Duration;

/// Reads an environment variable.
pub type Lookup = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// A callback that receives a line for the log.
pub type Say = Arc<dyn Fn(&str) + Send + Sync>;

/// The options of [`Group::join`](crate::Group::join).
#[derive(Clone)]
pub struct JoinOptions {
    /// Time limit for all ranks to join (default 300 s).
    pub join_timeout: Duration,
    /// Time within which ranks detect the loss of a rank (default 10 s).
    pub timeout: Duration,
    /// Receives log lines about rejected peers (default: ignores them).
    pub say: Say,
    /// Reads the environment (default: this process's).
    pub lookup: Lookup,
}

impl Default for JoinOptions {
    fn default() -> Self {
        Self {
            join_timeout: Duration::from_secs(300),
            timeout: Duration::from_secs(10),
            say: Arc::new(|_| {}),
            lookup: Arc::new(|name| std::env::var(name).ok()),
        }
    }
}
