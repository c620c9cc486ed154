//! The identity of a rank: its host, distinguished from others with the same name, and its process.

use std::fs;

use serde::{Deserialize, Serialize};

/// One rank of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its number in the group.
    pub rank: usize,
    /// Name of its host.
    pub host: String,
    /// Identity of the host: ranks with equal identity share a machine and its network. It
    /// distinguishes two containers with the same name.
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
        // With only the name, two containers with the same name would be one host; boot and network
        // namespace, like the name, are equal for all processes in some launchers' sandboxes.
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let network = fs::read_link("/proc/self/ns/net").unwrap_or_default();
        let host_id = format!("{host} {} {}", boot.trim(), network.display());
        Self { rank, host, host_id, local_rank, pid: std::process::id() }
    }
}
