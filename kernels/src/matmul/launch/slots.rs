//! The blocks that a GPU runs at once, and the time that waves of them take.

use device::Gpu;

/// What a multiprocessor keeps of its shared memory for each block, in bytes.
const RESERVED_BYTES: usize = 1024;
/// Registers of a multiprocessor.
const REGISTERS: usize = 65_536;

/// The blocks of a kernel that a GPU runs at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slots {
    pub multiprocessors: usize,
    /// Blocks that a multiprocessor holds.
    pub blocks: usize,
}

impl Slots {
    /// Those for blocks of `threads` threads that take registers and shared memory.
    pub(super) fn new(gpu: &Gpu, threads: usize, registers: usize, shared_bytes: usize) -> Self {
        let per_block = registers.next_multiple_of(8).max(8) * threads;
        let shared = (gpu.shared_bytes + RESERVED_BYTES) / (shared_bytes + RESERVED_BYTES);
        let blocks = (REGISTERS / per_block).min(shared).max(1);
        Self { multiprocessors: gpu.multiprocessors, blocks }
    }

    /// The time of `blocks` blocks, in units of a block's share of a full multiprocessor: whole
    /// waves, then the rest, evenly spread.
    pub(super) fn time(&self, blocks: usize) -> f64 {
        let wave = self.multiprocessors * self.blocks;
        let rest = (blocks % wave).div_ceil(self.multiprocessors);
        let whole = (blocks / wave * self.blocks) as f64;
        whole + if rest > 0 { rest as f64 / self.efficiency(rest) } else { 0.0 }
    }

    /// The part of its speed that a multiprocessor reaches with `resident` blocks: 70 % with half
    /// of them, as fewer warps hide less of each other's waiting.
    fn efficiency(&self, resident: usize) -> f64 {
        let missing = 1.0 - resident as f64 / self.blocks as f64;
        1.0 - 1.2 * missing * missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks per multiprocessor, from what the manifest says of the kernels.
    #[test]
    fn registers_and_shared_memory_bound_the_blocks() {
        let blocks = |gpu: &Gpu, registers, shared| Slots::new(gpu, 128, registers, shared).blocks;
        for gpu in [Gpu::a100(), Gpu::h100()] {
            assert_eq!(blocks(&gpu, 250, 65_536), 2);
            assert_eq!(blocks(&gpu, 116, 32_768), 4);
        }
        assert_eq!(blocks(&Gpu::a100(), 64, 65_536), 2);
        assert_eq!(blocks(&Gpu::h100(), 64, 65_536), 3);
    }

    #[test]
    fn a_wave_takes_its_time_even_if_it_is_not_full() {
        let slots = Slots { multiprocessors: 108, blocks: 2 };
        assert_eq!([slots.time(216), slots.time(432)], [2.0, 4.0]);
        // 252 blocks of seven splits take more than 216 of six, each a sixth longer.
        assert!(slots.time(252) / 7.0 > slots.time(216) / 6.0);
        // One block on each multiprocessor runs faster than two, and more slowly than half of them.
        assert!(slots.time(108) > 1.0 && slots.time(108) < slots.time(109));
    }
}
