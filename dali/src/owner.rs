//! Who holds a lock: host, process and since when.

use std::fmt;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Who holds a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Name of the host; that of the container if it runs in one.
    pub host: String,
    /// Identity of the running kernel: containers on one machine share it.
    pub kernel: String,
    /// Process id, as its own container counts.
    pub pid: u32,
    /// When it took the lock, seconds since 1970.
    pub since: u64,
}

impl Owner {
    /// This process.
    pub fn current() -> Owner {
        static HERE: OnceLock<(String, String)> = OnceLock::new();
        let (host, kernel) = HERE.get_or_init(|| {
            let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
            let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
            let kernel = boot.map_or_else(|_| host.clone(), |id| id.trim().to_string());
            (host, kernel)
        });
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs());
        Owner { host: host.clone(), kernel: kernel.clone(), pid: std::process::id(), since }
    }

    /// One that has not written its name yet.
    pub(crate) fn unknown() -> Owner {
        Owner { host: "unknown".into(), kernel: String::new(), pid: 0, since: 0 }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pid == 0 {
            return f.write_str("another process");
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs());
        let seconds = now.saturating_sub(self.since);
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        write!(f, "process {} on host {}, for ", self.pid, self.host)?;
        match (hours, minutes) {
            (0, 0) => write!(f, "{seconds} s"),
            (0, _) => write!(f, "{minutes} min {} s", seconds % 60),
            _ => write!(f, "{hours} h {minutes} min"),
        }
    }
}
