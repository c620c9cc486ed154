//! Memory and tensor core requests of warps, per launch.
//!
//! A request is one execution of an instruction by a warp with at least one active lane. Requests
//! are counted as described in NVIDIA's programming guide; this is not verified on hardware.
//!
//! - Shared memory has 32 banks of 4 bytes. A request is served in parts: a quarter of the warp at
//!   a time with 16 bytes per lane, half of it with 8 bytes, and the entire warp with 4 bytes or
//!   less. A part takes as many passes as its most loaded bank has distinct words. `ldmatrix` has
//!   one part per 8x8 matrix.
//! - A global memory request counts the distinct 32-byte sectors that its lanes access.

use std::collections::BTreeSet;

use super::Launch;
use super::warp::lanes;
use crate::lanes::Doubles;
use crate::ptx::Parameter;

const BANKS: usize = 32;
const WORD: u64 = 4;
const SECTOR: u64 = 32;

/// The operations that are counted, in the order of a launch's counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// An MMA of 16x16 and 16x8 values: 4096 FLOPs.
    Mma,
    /// A load of up to four 8x8 fp16 matrices from shared memory.
    Ldmatrix,
    /// The writes to shared memory of an asynchronous copy of 16 bytes per lane.
    CopyToShared,
    /// The reads of global memory of an asynchronous copy; zero-filled bytes are not read.
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

/// Sums over the requests of one operation.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    /// Number of requests.
    pub count: u64,
    /// Bytes requested by lanes.
    pub bytes: u64,
    /// Passes over the banks of shared memory, or 32-byte sectors of global memory.
    pub units: u64,
    /// Minimum number of units: one pass per part, or fully used sectors.
    pub least: u64,
    /// Units of the worst request.
    pub worst: u64,
}

impl Requests {
    /// Units divided by their minimum: 1 is perfect; 2 is a two-way bank conflict in every request.
    pub fn ratio(&self) -> f64 {
        self.units as f64 / self.least.max(1) as f64
    }
}

/// The requests of a launch, by operation.
pub(crate) type Counts = [Requests; 8];

/// A launch that was counted.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) kernel: String,
    pub(crate) grid: [u32; 3],
    /// The bytes of all parameters, concatenated.
    pub(crate) parameters: Vec<u8>,
    pub(crate) counts: Counts,
}

impl Counted {
    pub(super) fn of(launch: &Launch, counts: Counts) -> Self {
        let kernel = &launch.kernel;
        let bytes = |p: &Parameter| &launch.parameters[p.offset..][..p.bytes];
        let parameters = kernel.parameters.iter().flat_map(bytes).copied().collect();
        Self { kernel: kernel.name.clone(), grid: launch.grid, parameters, counts }
    }
}

/// Counts a warp's instruction that does not access memory.
pub(super) fn add_instruction(counts: &mut Counts, operation: Operation) {
    counts[operation as usize].count += 1;
}

/// Counts a request for `bytes` bytes per lane.
pub(super) fn add(
    counts: &mut Counts,
    operation: Operation,
    addresses: &Doubles,
    mask: u32,
    bytes: usize,
) {
    if mask == 0 {
        return;
    }
    let [units, least] = match operation {
        Operation::CopyFromGlobal | Operation::LoadGlobal | Operation::StoreGlobal => {
            let of = |lane: usize| [addresses[lane], addresses[lane] + bytes as u64 - 1];
            let sectors: BTreeSet<u64> = lanes(mask).flat_map(of).map(|at| at / SECTOR).collect();
            let places: BTreeSet<u64> = lanes(mask).map(|lane| addresses[lane]).collect();
            [sectors.len() as u64, (places.len() * bytes).div_ceil(SECTOR as usize) as u64]
        }
        _ => {
            let words = bytes.div_ceil(WORD as usize);
            let part = BANKS / words;
            let firsts = (0..32).step_by(part);
            let passes = firsts.map(|first| {
                let lanes = (first..first + part).filter(|lane| mask >> lane & 1 != 0);
                passes(lanes.map(|lane| addresses[lane] / WORD), words as u64)
            });
            passes.fold([0, 0], |[units, least], here| [units + here, least + here.min(1)])
        }
    };
    let requests = &mut counts[operation as usize];
    requests.count += 1;
    requests.bytes += u64::from(mask.count_ones()) * bytes as u64;
    requests.units += units;
    requests.least += least;
    requests.worst = requests.worst.max(units);
}

/// Passes over the banks for lanes that each access `words` consecutive words, starting at the word
/// indices in `lanes`.
fn passes(lanes: impl Iterator<Item = u64>, words: u64) -> u64 {
    let asked: BTreeSet<u64> = lanes.flat_map(|first| first..first + words).collect();
    let mut banks = [0; BANKS];
    asked.iter().for_each(|word| banks[*word as usize % BANKS] += 1);
    banks.into_iter().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Units and their minimum for 32 lanes whose addresses are `stride` bytes apart.
    fn of(operation: Operation, bytes: usize, stride: u64) -> [u64; 2] {
        let mut counts = Counts::default();
        let addresses = std::array::from_fn(|lane| lane as u64 * stride);
        add(&mut counts, operation, &addresses, u32::MAX, bytes);
        let Requests { count, bytes: all, units, least, worst } = counts[operation as usize];
        assert_eq!((count, all, worst), (1, 32 * bytes as u64, units));
        [units, least]
    }

    #[test]
    fn bank_conflicts_and_sectors_are_counted() {
        use Operation::{LoadGlobal, LoadShared, StoreShared};
        assert_eq!(of(LoadShared, 4, 4), [1, 1]);
        assert_eq!(of(LoadShared, 4, 0), [1, 1], "one word for all");
        assert_eq!(of(LoadShared, 4, 8), [2, 1], "every other bank");
        assert_eq!(of(StoreShared, 4, 128), [32, 1], "one bank");
        assert_eq!(of(LoadShared, 8, 8), [2, 2], "by halves of the warp");
        assert_eq!(of(LoadShared, 16, 16), [4, 4], "by quarters");
        assert_eq!(of(LoadShared, 16, 32), [8, 4]);
        assert_eq!(of(LoadGlobal, 4, 4), [4, 4]);
        assert_eq!(of(LoadGlobal, 16, 32), [32, 16], "half of each sector");
        assert_eq!(of(LoadGlobal, 4, 64), [32, 4]);
    }
}
