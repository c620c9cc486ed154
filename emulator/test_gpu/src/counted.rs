//! Launches with the counted memory and tensor core requests of their warps (see
//! `emulator/src/exec/counts.rs`).

use device::Launch;
use emulator::{Operation, Requests};

/// A launch that was counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    /// Name of the kernel.
    pub kernel: String,
    /// The grid, in blocks.
    pub grid: [u32; 3],
    pub(crate) parameters: Vec<u8>,
    pub(crate) requests: [Requests; 8],
}

impl Counted {
    /// The requests of an operation.
    pub fn requests(&self, operation: Operation) -> Requests {
        self.requests[operation as usize]
    }

    /// True if these are the counts of this launch.
    pub fn is_of(&self, launch: &Launch) -> bool {
        let bytes: Vec<u8> = launch.args.iter().flat_map(|arg| arg.bytes()).collect();
        self.kernel == launch.kernel && self.grid == launch.grid && bytes == self.parameters
    }
}
