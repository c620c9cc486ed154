//! The identity of a rank: its host and its process.

use std::fs;

use serde::{Deserialize, Serialize};

/// One rank of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its number in the group.
    pub rank: usize,
    /// Name of its host.
    pub host: String,
    /// Identity of the host. Ranks with equal identities share a machine and its network;
    /// containers with equal names have different identities.
    pub host_id: String,
    /// Its number among the ranks of its host, from the launcher.
    pub local_rank: usize,
    /// Its process id on its host.
    pub pid: u32,
}

impl Member {
    /// This process.
    pub(crate) fn this(rank: usize, local_rank: usize) -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        // The name does not distinguish containers with equal names, so the boot id and the network
        // namespace are added. All processes of a host have the same ones, even in the
        // sandboxes of some launchers.
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let network = fs::read_link("/proc/self/ns/net").unwrap_or_default();
        let host_id = format!("{host} {} {}", boot.trim(), network.display());
        Self { rank, host, host_id, local_rank, pid: std::process::id() }
    }
}
