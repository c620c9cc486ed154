//! How a rank joins its group.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Reads an environment variable.
pub type Lookup = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Takes a line for the log.
pub type Say = Arc<dyn Fn(&str) + Send + Sync>;

/// The options of [`Group::join`](crate::Group::join), besides the rank.
#[derive(Clone)]
pub struct JoinOptions {
    /// Where rank 0 listens, as `HOST:PORT`. Else `MASTER_ADDR:MASTER_PORT`; else, on one node,
    /// a port that the ranks find through a file of the user's.
    pub address: Option<String>,
    /// The secret of the run, the same on all ranks. Else `ONEGRAPH_TOKEN`, the file
    /// `ONEGRAPH_TOKEN_FILE`, the key that Open MPI gives each job; else, on one node, a random
    /// one that rank 0 leaves in a file that only the user may read.
    pub token: Option<String>,
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
            address: None,
            token: None,
            join_timeout: Duration::from_secs(300),
            timeout: Duration::from_secs(10),
            say: Arc::new(|_| {}),
            lookup: Arc::new(|name| std::env::var(name).ok()),
        }
    }
}

impl fmt::Debug for JoinOptions {
    /// Without the token: debug output ends up in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinOptions")
            .field("address", &self.address)
            .field("join_timeout", &self.join_timeout)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
