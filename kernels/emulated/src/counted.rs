//! What warps asked of shared memory, global memory and tensor cores, launch by launch.
//!
//! The rules by which passes over the banks and sectors are counted are in `runtime/counter.h`.
//! They are NVIDIA's documented ones, not verified on hardware.

use device::Launch;

/// What a warp's instruction does. Plain loads and stores are counted where a kernel makes them
/// through `counted.cuh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// A product of 16x16 and 16x8 values: 4096 FLOPs.
    Mma,
    /// Four 8x8 matrices of half from shared memory.
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

impl Operation {
    /// In the order of the runtime's.
    pub(crate) const ALL: [Self; 8] = [
        Self::Mma,
        Self::Ldmatrix,
        Self::CopyToShared,
        Self::CopyFromGlobal,
        Self::LoadShared,
        Self::StoreShared,
        Self::LoadGlobal,
        Self::StoreGlobal,
    ];
}

/// Sums over requests. A request is one instruction of a warp in which a lane takes part.
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

/// The requests of one line of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// File and line, as `epilogue.cuh:120`.
    pub place: String,
    /// What the line does.
    pub operation: Operation,
    /// What came of it.
    pub requests: Requests,
}

/// A launch that was counted.
#[derive(Debug, Clone)]
pub struct CountedLaunch {
    /// The launch.
    pub launch: Launch,
    /// Its lines, in the order in which they were first reached.
    pub sites: Vec<Site>,
}

impl CountedLaunch {
    /// The requests of an operation, all lines together.
    pub fn requests(&self, operation: Operation) -> Requests {
        let sites = self.sites.iter().filter(|site| site.operation == operation);
        sites.fold(Requests::default(), |sum, site| Requests {
            count: sum.count + site.requests.count,
            bytes: sum.bytes + site.requests.bytes,
            units: sum.units + site.requests.units,
            least: sum.least + site.requests.least,
            worst: sum.worst.max(site.requests.worst),
        })
    }
}
