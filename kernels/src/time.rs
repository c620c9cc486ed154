//! Cost model of work on a GPU, shared by GEMM plans, streams and `bench plan`.
//!
//! Peaks are from data sheets, L2 bandwidth from published measurements. The fraction of the peak
//! that kernels reach is estimated as a range ([`Case`]): a measurement outside the range refutes
//! the model. The model was compared with one H100 in `docs/measurements-gpu.md`, and not verified
//! on other GPUs.

use device::{Gpu, Launch};

use crate::matmul::launch::{DEPTH, Tile, tile_of};
use crate::occupancy::Slots;

/// The peak rates of a GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Peak {
    /// TFLOP/s of fp16 MMAs with fp32 accumulation on tensor cores, without sparsity.
    pub tflops: f64,
    /// GB/s of memory.
    pub gb_per_s: f64,
}

/// A data sheet, and GB/s of loads from L2.
///
/// Source of the L2 numbers: `gpu-l2-cache` of te42kyfo/gpu-benches: A100 5.4, H100 PCIe 6.9 and
/// H200 9.6 TB/s. The H200 number includes some L1 hits, so 8.0 is used; XLA assumes 6.65 on an
/// H100.
type Sheet = (Peak, f64);

const fn sheet(tflops: f64, gb_per_s: f64, l2_gb_per_s: f64) -> Sheet {
    (Peak { tflops, gb_per_s }, l2_gb_per_s)
}

const A100: Sheet = sheet(312.0, 2039.0, 5400.0);
const H100: Sheet = sheet(989.4, 3352.0, 6700.0);

/// Data sheets by parts of the driver's GPU name: the first row whose parts are all in the name is
/// used.
const SHEETS: &[(&[&str], Sheet)] = &[
    (&["H200"], sheet(989.4, 4800.0, 8000.0)),
    (&["H100", "PCIe"], sheet(756.0, 2039.0, 6700.0)),
    (&["H100", "NVL"], sheet(835.0, 3938.0, 6700.0)),
    (&["H100"], H100),
    (&["A100", "PCIE-40GB"], sheet(312.0, 1555.0, 5400.0)),
    (&["A100", "SXM4-40GB"], sheet(312.0, 1555.0, 5400.0)),
    (&["A100", "PCIe"], sheet(312.0, 1935.0, 5400.0)),
    (&["A100"], A100),
];

/// The sheet of a GPU of this name, if it is known.
fn sheet_of(name: &str) -> Option<Sheet> {
    let holds = |parts: &[&str]| parts.iter().all(|part| name.contains(part));
    SHEETS.iter().find(|(parts, _)| holds(parts)).map(|(_, sheet)| *sheet)
}

impl Peak {
    /// The limits of a GPU of this name, if they are known.
    pub fn of(name: &str) -> Option<Self> {
        sheet_of(name).map(|(peak, _)| peak)
    }

    /// Minimum milliseconds for this many GEMM FLOPs and bytes.
    pub fn least_ms(&self, flops: f64, bytes: f64) -> f64 {
        1e3 * (flops / (1e12 * self.tflops)).max(bytes / (1e9 * self.gb_per_s))
    }
}

/// The position of an estimate in its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// Best case.
    Fast,
    /// Expected case.
    Expected,
    /// Worst case.
    Slow,
}

impl Case {
    /// All cases, from fast to slow.
    pub const ALL: [Case; 3] = [Case::Fast, Case::Expected, Case::Slow];

    fn of(self, range: [f64; 3]) -> f64 {
        range[self as usize]
    }
}

/// Fraction of the peak bandwidth reached by a kernel that fills the GPU. Published copy kernels
/// reach 83 to 88 % on an A100.
const OF_MEMORY: [f64; 3] = [0.88, 0.84, 0.78];
/// Microseconds from the end of a kernel to the start of the next kernel in a graph. Small kernels
/// of a graph start every 1.3 us (`gpu-small-kernels` of te42kyfo/gpu-benches).
const GAP_US: [f64; 3] = [1.0, 1.4, 2.0];
/// Factor on the cycles that GEMM plans assume for a tile, on Ampere. With it, a large tile reaches
/// 245, 222 or 200 TFLOP/s for a long reduction on an A100, where cuBLAS reaches up to 271.
const CYCLES_8: [f64; 3] = [1.12, 1.24, 1.375];
/// [`CYCLES_8`] for Hopper, where `mma.sync` reaches at most 63 % of the peak of wgmma: 450, 395 or
/// 345 TFLOP/s. On an H100, the L2 is too slow to supply operands for the first rate.
const CYCLES_9: [f64; 3] = [0.97, 1.106, 1.266];
/// An additional factor for tiles of 64x64, which reduces their rate from 0.79 of the large tiles'
/// rate, as plans assume, to at least 0.43 of it.
const SMALL: [f64; 3] = [1.0, 1.4, 1.8];
/// Factor on the time that GEMM plans assume for the start and end of a tile, which is 4.3 k-blocks
/// of a large tile.
const ENDS: [f64; 3] = [1.2, 1.6, 2.0];
/// FLOPs per cycle of a multiprocessor, on Ampere and on Hopper: the tensor-core peak, and the rate
/// that kernels without tensor cores reach.
const TENSOR_FLOPS: [f64; 2] = [2048.0, 4096.0];
const SCALAR_FLOPS: [f64; 2] = [52.0, 62.0];
/// Threads that a multiprocessor needs for its share of the memory bandwidth.
const STREAMING_THREADS: f64 = 256.0;

/// The kernels with the largest tiles, on Ampere and on Hopper.
const LARGEST: [&str; 2] = ["conv2d_f16_large", "conv2d_f16_tall"];

/// Rates of a GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Rates {
    gpu: Gpu,
    peak: Peak,
    l2_gb_per_s: f64,
    case: Case,
    ghz: f64,
}

/// The work of one launch.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Work {
    /// Blocks with work to do.
    pub blocks: f64,
    /// Bytes that it reads and writes.
    pub bytes: f64,
    /// FLOPs outside of GEMMs.
    pub flops: f64,
    /// Reduction length of a GEMM: terms per output.
    pub depth: f64,
    /// Columns of the GEMM, if a block computes all of them, tile after tile.
    pub columns: Option<usize>,
}

/// Duration of a single launch, without the gap before it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Time {
    /// Microseconds.
    pub us: f64,
    /// The duration if its blocks filled the GPU.
    pub filled_us: f64,
}

impl Rates {
    /// The rates of a GPU in the best, expected or worst case. For an unknown name, the data sheet
    /// of an A100 or H100 is used.
    pub fn of(gpu: &Gpu, case: Case) -> Self {
        let hopper = usize::from(gpu.capability.major >= 9);
        let (peak, l2_gb_per_s) = sheet_of(&gpu.name).unwrap_or([A100, H100][hopper]);
        let ghz = peak.tflops * 1e3 / [108.0, 132.0][hopper] / TENSOR_FLOPS[hopper];
        Self { gpu: gpu.clone(), peak, l2_gb_per_s, case, ghz }
    }

    /// Index of the architecture in a table: Ampere or Hopper.
    fn hopper(&self) -> usize {
        usize::from(self.gpu.capability.major >= 9)
    }

    /// Microseconds between two kernels of a captured graph.
    pub fn gap_us(&self) -> f64 {
        self.case.of(GAP_US)
    }

    /// GB/s of a kernel that fills the GPU.
    pub fn gb_per_s(&self) -> f64 {
        self.case.of(OF_MEMORY) * self.peak.gb_per_s
    }

    /// TFLOP/s without tensor cores.
    pub fn scalar_tflops(&self) -> f64 {
        SCALAR_FLOPS[self.hopper()] * self.multiprocessors() * self.ghz / 1e3
    }

    /// TFLOP/s of a GEMM kernel for a long reduction that fills the GPU.
    pub fn tflops(&self, kernel: &str) -> Option<f64> {
        let tile = tile_of(kernel)?;
        let us = self.k_block_us(&tile) / self.multiprocessors();
        let bytes = tile.operand_bytes() / (self.l2_gb_per_s * 1e3);
        Some(tile.flops() / us.max(bytes) / 1e6)
    }

    /// Approximate duration of a node whose launches are unknown.
    pub fn node_us(&self, on_tensor_cores: bool, flops: f64, bytes: f64) -> f64 {
        let tflops = match on_tensor_cores {
            true => self.tflops(LARGEST[self.hopper()]).unwrap_or(self.peak.tflops),
            false => self.scalar_tflops(),
        };
        self.gap_us() + (flops / tflops / 1e6).max(bytes / self.gb_per_s() / 1e3)
    }

    /// Duration of a launch.
    pub fn launch(&self, launch: &Launch, work: &Work) -> Time {
        let streamed = self.streamed(launch, work);
        let computed = match tile_of(launch.kernel) {
            Some(tile) => self.gemm(&tile, launch, work),
            None => {
                let us = work.flops / self.scalar_tflops() / 1e6;
                Time { us, filled_us: us }
            }
        };
        Time {
            us: streamed.us.max(computed.us),
            filled_us: streamed.filled_us.max(computed.filled_us),
        }
    }

    fn streamed(&self, launch: &Launch, work: &Work) -> Time {
        let filled_us = work.bytes / self.gb_per_s() / 1e3;
        let threads = work.blocks * f64::from(launch.block[0]);
        let part = threads / (STREAMING_THREADS * self.multiprocessors());
        Time { us: filled_us / part.clamp(1e-3, 1.0), filled_us }
    }

    fn gemm(&self, tile: &Tile, launch: &Launch, work: &Work) -> Time {
        let k_blocks = work.depth / DEPTH as f64 / f64::from(launch.grid[2].max(1));
        let ends = self.case.of(ENDS) * tile.block_cycles / tile.k_block_cycles;
        let tiles = work.columns.map_or(1, |columns| columns.div_ceil(tile.columns)) as f64;
        let block_us = tiles * (k_blocks + ends) * self.k_block_us(tile);
        let slots = Slots::of(&self.gpu, launch);
        let operands = work.blocks * tiles * k_blocks * tile.operand_bytes();
        let fed_us = operands / self.l2_gb_per_s / 1e3;
        Time {
            us: (slots.time(work.blocks.ceil() as usize) * block_us).max(fed_us),
            filled_us: (work.blocks * block_us / self.multiprocessors()).max(fed_us),
        }
    }

    /// Microseconds per k-block on a full multiprocessor, divided by the number of its blocks, as
    /// limited by instructions or by shared memory.
    fn k_block_us(&self, tile: &Tile) -> f64 {
        let small = if tile.is_small() { self.case.of(SMALL) } else { 1.0 };
        let factor = small * self.case.of([CYCLES_8, CYCLES_9][self.hopper()]);
        tile.k_block_cycles.max(tile.shared_cycles()) * factor / self.ghz / 1e3
    }

    fn multiprocessors(&self) -> f64 {
        self.gpu.multiprocessors as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn driver_device_names_are_recognised() {
        let bandwidth = |name| Peak::of(name).map(|peak| peak.gb_per_s);
        assert_eq!(bandwidth("NVIDIA H200, driver for CUDA 13.0"), Some(4800.0));
        assert_eq!(bandwidth("NVIDIA H100 PCIe"), Some(2039.0));
        assert_eq!(bandwidth("NVIDIA H100 80GB HBM3"), Some(3352.0));
        assert_eq!(bandwidth("NVIDIA A100-SXM4-80GB"), Some(2039.0));
        assert_eq!(bandwidth("NVIDIA A100-SXM4-40GB"), Some(1555.0));
        assert_eq!(bandwidth("NVIDIA A100 80GB PCIe"), Some(1935.0));
        assert_eq!(bandwidth("NVIDIA L4"), None);
    }

    #[test]
    fn time_is_larger_of_compute_and_memory() {
        let peak = Peak { tflops: 100.0, gb_per_s: 1000.0 };
        assert_eq!(peak.least_ms(1e11, 1e6), 1.0);
        assert_eq!(peak.least_ms(1e9, 2e9), 2.0);
    }

    /// Rates are those that the comments on the constants state.
    #[test]
    fn large_tile_rates_match_documented_ranges() {
        let tflops = |gpu: &Gpu| {
            Case::ALL.map(|case| Rates::of(gpu, case).tflops("conv2d_f16_large").expect("a tile"))
        };
        let near = |found: [f64; 3], said: [f64; 3]| {
            let mut pairs = found.iter().zip(said);
            assert!(pairs.all(|(a, b)| (a / b - 1.0).abs() < 0.01), "{found:?}, said {said:?}");
        };
        near(tflops(&Gpu::a100()), [245.0, 222.0, 200.0]);
        near(tflops(&Gpu::h100()), [429.0, 395.0, 345.0]);
    }

    /// A GEMM that fills the GPU reaches its tile's rate for a long reduction, and stays more than
    /// 10 % below it for a short one, whose tiles start and end often.
    #[test]
    fn long_reductions_reach_tile_rate() {
        let gpus = Gpu::NAMES.map(|name| Gpu::named(name).expect(name));
        for (gpu, case) in gpus.iter().flat_map(|gpu| Case::ALL.map(|case| (gpu, case))) {
            let rates = Rates::of(gpu, case);
            for (kernel, side, shared) in
                [("conv2d_f16_large", 128, 65_536), ("conv2d_f16_small", 64, 32_768)]
            {
                let blocks = 100 * 8 * gpu.multiprocessors;
                let tflops = |depth: usize| {
                    let launch = Launch::new(kernel, [blocks, 1, 1]).block(128).shared(shared);
                    let (blocks, depth) = (blocks as f64, depth as f64);
                    let work = Work { blocks, depth, ..Work::default() };
                    let flops = 2.0 * blocks * (side * side) as f64 * depth;
                    flops / rates.launch(&launch, &work).us / 1e6
                };
                let said = rates.tflops(kernel).expect("a tile");
                let ratio = tflops(1 << 20) / said;
                assert!((ratio - 1.0).abs() < 0.01, "{kernel} on {}: {ratio}", gpu.name);
                assert!(tflops(256) < 0.9 * said, "{kernel} on {}", gpu.name);
            }
        }
    }

    #[test]
    fn few_threads_do_not_saturate_memory_bandwidth() {
        let rates = Rates::of(&Gpu::h100(), Case::Expected);
        let us = |blocks: usize| {
            let launch = Launch::new("relu_mask_f16", [blocks, 1, 1]);
            let work = Work { blocks: blocks as f64, bytes: 1e9, ..Work::default() };
            rates.launch(&launch, &work).us
        };
        assert!((us(10_000) - 1e6 / 0.84 / 3352.0).abs() < 1e-6);
        assert!((us(66) - 2.0 * us(132)).abs() < 1e-6);
    }
}
