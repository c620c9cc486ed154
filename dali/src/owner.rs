//! The owner of a lock: host, process and time.

use std::fmt;
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The owner of a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Host name, or the container's name.
    pub host: String,
    /// Identity of the running kernel, which is equal for all containers of one machine.
    pub(crate) kernel: String,
    /// Process id, counted inside the owner's container; 0 if unknown.
    pub pid: u32,
    /// Time when the lock was acquired, in seconds since 1970.
    pub(crate) since: i64,
    /// True if this process cannot check that the owner is still running; only the user can.
    #[serde(skip)]
    pub(crate) may_be_gone: bool,
}

impl Owner {
    /// This process.
    pub fn current() -> Owner {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let kernel = boot.map_or_else(|_| host.clone(), |id| id.trim().to_string());
        let (pid, since) = (std::process::id(), Timestamp::now().as_second());
        Owner { host, kernel, pid, since, may_be_gone: false }
    }

    /// True if `other` seems to run on a different machine.
    pub(crate) fn is_far_from(&self, other: &Owner) -> bool {
        self.kernel != other.kernel && self.host != other.host
    }

    /// The last clause of a message about the owner of the lock file `lock`: how to proceed if the
    /// owner has ended.
    pub fn if_gone(&self, lock: &Path) -> String {
        match self.may_be_gone {
            true => format!("; if it is gone, remove {}", lock.display()),
            false => String::new(),
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pid == 0 {
            return f.write_str("another process");
        }
        write!(f, "process {} on host {}", self.pid, self.host)?;
        Timestamp::from_second(self.since).map_or(Ok(()), |since| write!(f, " since {since}"))
    }
}
