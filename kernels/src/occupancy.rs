//! The number of blocks that a GPU runs at once, and the time that waves of them take.

use device::{Gpu, Launch};

use crate::compiled::kernels;

/// Bytes of shared memory that a multiprocessor reserves for each block.
const RESERVED_BYTES: usize = 1024;
/// Registers, threads and blocks per multiprocessor, of capability 8.0 and 9.0.
const REGISTERS: usize = 65_536;
const THREADS: usize = 2048;
const BLOCKS: usize = 32;

/// The number of a kernel's blocks that a GPU runs at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots {
    /// Multiprocessors of the GPU.
    pub multiprocessors: usize,
    /// Resident blocks per multiprocessor.
    pub blocks: usize,
}

impl Slots {
    /// The slots of a launch, from the kernel's resources reported by the assembler.
    pub fn of(gpu: &Gpu, launch: &Launch) -> Self {
        let kernel = kernels().manifest().kernel(launch.kernel, gpu.capability);
        let on = || kernel.iter().flat_map(|(_, kernel)| kernel.on.values());
        let registers = on().map(|taken| taken.registers).max().unwrap_or(255) as usize;
        let shared = on().map(|taken| taken.shared_bytes).max().unwrap_or(0) + launch.shared_bytes;
        let threads = launch.block.iter().product::<u32>().max(1) as usize;
        Self::new(gpu, threads, registers, shared as usize)
    }

    /// The slots for blocks of `threads` threads with these registers and this shared memory.
    fn new(gpu: &Gpu, threads: usize, registers: usize, shared_bytes: usize) -> Self {
        let per_block = registers.next_multiple_of(8).max(8) * threads.next_multiple_of(32);
        let shared = (gpu.shared_bytes + RESERVED_BYTES) / (shared_bytes + RESERVED_BYTES);
        let most = (THREADS / threads.max(1)).min(BLOCKS);
        let blocks = (REGISTERS / per_block).min(shared).min(most).max(1);
        Self { multiprocessors: gpu.multiprocessors, blocks }
    }

    /// The time of `blocks` blocks: whole waves, then the rest, evenly spread. The unit is the time
    /// of a block on a full multiprocessor, divided by the number of its resident blocks.
    pub fn time(&self, blocks: usize) -> f64 {
        let wave = self.multiprocessors * self.blocks;
        let rest = (blocks % wave).div_ceil(self.multiprocessors);
        let whole = (blocks / wave * self.blocks) as f64;
        whole + if rest > 0 { rest as f64 / self.efficiency(rest) } else { 0.0 }
    }

    /// The fraction of its full speed that a multiprocessor reaches with `resident` blocks: 70 %
    /// with half of the maximum, as fewer warps hide less latency.
    fn efficiency(&self, resident: usize) -> f64 {
        let missing = 1.0 - resident as f64 / self.blocks as f64;
        1.0 - 1.2 * missing * missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks per multiprocessor, from the manifest's resources of the kernels.
    #[test]
    fn registers_and_shared_memory_limit_blocks_per_sm() {
        let blocks = |gpu: &Gpu, registers, shared| Slots::new(gpu, 128, registers, shared).blocks;
        for gpu in [Gpu::a100(), Gpu::h100()] {
            assert_eq!(blocks(&gpu, 250, 65_536), 2);
            assert_eq!(blocks(&gpu, 116, 32_768), 4);
        }
        assert_eq!(blocks(&Gpu::a100(), 64, 65_536), 2);
        assert_eq!(blocks(&Gpu::h100(), 64, 65_536), 3);
    }

    #[test]
    fn partial_wave_costs_a_full_wave() {
        let slots = Slots { multiprocessors: 108, blocks: 2 };
        assert_eq!([slots.time(216), slots.time(432)], [2.0, 4.0]);
        // 252 blocks with split-K 7 take more time than 216 blocks with split-K 6, although each of
        // the latter takes a sixth longer.
        assert!(slots.time(252) / 7.0 > slots.time(216) / 6.0);
        // One block per multiprocessor runs faster than two, but not twice as fast.
        assert!(slots.time(108) > 1.0 && slots.time(108) < slots.time(109));
    }
}
