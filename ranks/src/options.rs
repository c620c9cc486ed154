//! How a rank joins its group.

use std::sync::Arc;
use std::time::Duration;

/// Reads an environment variable.
pub type Lookup = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Takes a line for the log.
pub type Say = Arc<dyn Fn(&str) + Send + Sync>;

/// The options of [`Group::join`](crate::Group::join), besides the rank.
#[derive(Clone)]
pub struct JoinOptions {
    /// How long all ranks have to come (default 300 s).
    pub join_timeout: Duration,
    /// Survivors of a loss know of it within this time (default 10 s).
    pub timeout: Duration,
    /// Takes lines for the log: strangers who were refused (default: none).
    pub say: Say,
    /// Reads the environment (default: that of the process).
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
