//! Executes launches: one warp at a time, all 32 lanes together, and checks every memory access.
// Lanes are visited by index, not by iterators: inlined loops are vectorised for the features of
// their caller.
#![allow(clippy::needless_range_loop)]

mod access;
mod block;
mod bulk;
mod collective;
pub(crate) mod counts;
pub(crate) mod coverage;
mod flight;
mod hopper;
mod mbarrier;
mod races;
mod shared;
mod tensor;
mod warp;
mod wgmma;

use std::sync::Arc;

use crate::lanes::is_supported;
use crate::memory::Memory;
use crate::ptx::Kernel;
use crate::random::Random;
use block::Block;
pub(crate) use counts::{Counted, Counts};

/// Maximum number of warp instructions of a block; a block with more is considered endless.
const MAX_INSTRUCTIONS: u64 = 1 << 32;

/// CUDA error codes.
const ILLEGAL_ADDRESS: i32 = 700;
const LAUNCH_TIMEOUT: i32 = 702;
const MISALIGNED_ADDRESS: i32 = 716;
/// The error for mistakes that a GPU does not detect, but the emulator does.
const LAUNCH_FAILED: i32 = 719;

/// One launch of a kernel.
#[derive(Debug, Clone)]
pub(crate) struct Launch {
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub(crate) dynamic_shared: u32,
    /// The parameters, in the layout of the kernel's `parameters`.
    pub(crate) parameters: Vec<u8>,
    /// All ranges that the kernel may access, if the program has declared them.
    pub(crate) declared: Option<Vec<Declared>>,
}

/// A byte range that a program declares for an operation.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Declared {
    pub(crate) first: u64,
    pub(crate) bytes: u64,
    /// 1 if the bytes may be written.
    pub(crate) writes: u64,
}

/// The failure of a launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The driver's error code, such as 700 for an illegal address.
    pub(crate) code: i32,
    /// The error message: kernel, PTX line, block, lanes.
    pub(crate) sentence: String,
}

/// An error in some lanes, before the location is added.
#[derive(Debug)]
struct Trouble {
    code: i32,
    text: String,
    lanes: u32,
}

fn trouble<T>(code: i32, lanes: u32, text: impl Into<String>) -> Result<T, Trouble> {
    Err(Trouble { code, text: text.into(), lanes })
}

/// The rounding of tensor core accumulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sums {
    /// In fp32, rounded after each multiply-add.
    Rounded,
    /// In groups of `group` terms, which are aligned and truncated to `bits` more bits than fp32
    /// has.
    Cut { group: usize, bits: i32 },
}

/// How a launch is executed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    pub(crate) sums: Sums,
    /// Checks shared memory for races and reads of unwritten bytes.
    pub(crate) watch_shared: bool,
    /// Checks global memory for races between blocks.
    pub(crate) watch_global: bool,
    /// Counts memory and tensor core requests of warps.
    pub(crate) count: bool,
}

/// Runs all blocks; the order of blocks and warps is randomised by `seed`. Returns the counted
/// requests of warps, if counting is enabled.
///
/// # Errors
/// The first error, with its location.
pub(crate) fn run(
    launch: &Launch,
    memory: &Memory,
    seed: u64,
    options: Options,
) -> Result<Option<Counted>, Fault> {
    let name = &launch.kernel.name;
    assert!(is_supported(), "modules are loaded only on supported processors");
    let mut random = Random::new(seed);
    let count = launch.grid.iter().map(|size| *size as usize).product::<usize>();
    // The stride is coprime to the number of blocks, so the loop visits each block once.
    let first = random.below(count);
    let mut step = 1 + random.below(count);
    while gcd(step, count) != 1 {
        step += 1;
    }
    let mut block = Block::new(launch, memory, options, random);
    for i in 0..count {
        let index = ((first as u128 + i as u128 * step as u128) % count as u128) as usize;
        let [x, y, _] = launch.grid.map(|size| size as usize);
        let place = [index % x, index / x % y, index / x / y].map(|at| at as u32);
        // SAFETY: the processor has the features, as checked above.
        #[allow(unsafe_code)]
        unsafe {
            block.run(place, index as u32)?
        };
    }
    coverage::add(name, &launch.kernel.program, &block.counters);
    Ok(block.counts.map(|requests| Counted::of(launch, requests)))
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
