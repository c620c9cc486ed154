//! Requests of warps to shared memory, global memory and tensor cores, launch by launch.
//!
//! The rules by which passes over the banks and sectors are counted are in
//! `driver/src/exec/counts.rs`.

use device::Launch;

/// The operation of a warp's instruction, in the order of the driver's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A product of 16x16 and 16x8 values: 4096 FLOPs.
    Mma,
    /// Up to four 8x8 matrices of half from shared memory.
    Ldmatrix,
    /// 16 bytes a lane by an asynchronous copy: its writes to shared memory.
    CopyToShared,
    /// The same copy's reads of global memory; padding is not read.
    CopyFromGlobal,
    /// A load from shared memory.
    LoadShared,
    /// A store to shared memory.
    StoreShared,
    /// A load from global memory.
    LoadGlobal,
    /// A store to global memory.
    StoreGlobal,
}

/// Sums over requests. A request is one instruction of a warp in which a lane takes part.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    /// How many.
    pub count: u64,
    /// Bytes that their lanes asked for.
    pub bytes: u64,
    /// Passes over the banks of shared memory, or 32-byte sectors of global memory.
    pub units: u64,
    /// Units that would do: no bank asked for two words in a pass, no sector touched in part.
    pub least: u64,
    /// Units of the worst.
    pub worst: u64,
}

impl Requests {
    /// Units over the least: 1 is perfect, 2 a two-way bank conflict in every request.
    pub fn ratio(&self) -> f64 {
        self.units as f64 / self.least.max(1) as f64
    }
}

/// A launch that was counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    /// Its kernel.
    pub kernel: String,
    /// Its blocks.
    pub grid: [u32; 3],
    pub(crate) parameters: Vec<u8>,
    pub(crate) requests: [Requests; 8],
}

impl Counted {
    /// The requests of an operation.
    pub fn requests(&self, operation: Operation) -> Requests {
        self.requests[operation as usize]
    }

    /// True if this is what came of the launch.
    pub fn is_of(&self, launch: &Launch) -> bool {
        let bytes: Vec<u8> = launch.args.iter().flat_map(|arg| arg.bytes()).collect();
        self.kernel == launch.kernel && self.grid == launch.grid && bytes == self.parameters
    }
}
