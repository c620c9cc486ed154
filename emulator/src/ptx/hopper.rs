//! Decoded Hopper instructions.

use super::operand::{Address, Place, Reg};

/// Operand A of a wgmma: registers of each warp, or a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    Registers([Reg; 4]),
    Descriptor(Reg),
}

/// `wgmma.mma_async` with 64 rows: `d = a b`, or, if the predicate `adds` is true, `d += a b`.
#[derive(Debug, Clone)]
pub(crate) struct Wgmma {
    pub(crate) columns: usize,
    /// Operands are bf16, not f16.
    pub(crate) is_brain: bool,
    /// Two f16 accumulators in each register, not one f32.
    pub(crate) has_half_sums: bool,
    pub(crate) d: Box<[Reg]>,
    pub(crate) a: Left,
    /// Descriptor of operand B.
    pub(crate) b: Reg,
    pub(crate) adds: Reg,
    /// For operands A and B: whether elements are negated, and whether the operand is transposed in
    /// shared memory.
    pub(crate) negated: [bool; 2],
    pub(crate) transposed: [bool; 2],
}

/// The phase that `mbarrier.test_wait` or `try_wait` tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The register with the state that `mbarrier.arrive` returned.
    State(Reg),
    Parity(Reg),
}

/// An operation on an mbarrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mbarrier {
    Init(Reg),
    Invalidate,
    ExpectBytes(Reg),
    /// Destination of the state, number of arrivals, and bytes that are added to the expected bytes
    /// first.
    Arrive {
        state: Option<Reg>,
        count: Reg,
        bytes: Option<Reg>,
    },
    /// Destination of the result, and whether the warp may be suspended.
    Test(Reg, Phase, bool),
    /// `cp.async.mbarrier.arrive`; true with `.noinc`.
    CopiesArrive(bool),
}

/// A bulk copy between global and shared memory.
#[derive(Debug, Clone)]
pub(crate) struct Bulk {
    pub(crate) shared: Address,
    /// Address in global memory, or, with coordinates, of a tensor map.
    pub(crate) global: Address,
    pub(crate) coordinates: Option<Box<[Reg]>>,
    /// Number of bytes, for a copy without a tensor map.
    pub(crate) bytes: Reg,
    /// For copies to shared memory, the mbarrier to signal; copies to global memory complete by
    /// groups.
    pub(crate) barrier: Option<Address>,
}

#[derive(Debug, Clone)]
pub(crate) enum Hopper {
    /// `wgmma.fence`.
    Fence,
    Wgmma(Wgmma),
    /// `wgmma.commit_group` and `wgmma.wait_group`.
    Commit,
    Wait(u32),
    /// `setmaxnreg`: only checks that the entire warp executes it.
    Registers,
    /// A named barrier: its number, its number of threads, and whether the warp waits.
    Barrier(Reg, Option<Reg>, bool),
    /// `fence.proxy.async`; the emulator checks it only for shared memory.
    FenceProxy,
    /// `fence.mbarrier_init`.
    FenceBarriers,
    /// `elect.sync`: destinations of leader and predicate, and the mask.
    Elect(Option<Reg>, Reg, Reg),
    Mbarrier(Mbarrier, Place),
    Bulk(Bulk),
    BulkCommit,
    /// `cp.async.bulk.wait_group`: the number of groups that may stay in flight, and whether it
    /// waits only for the reads (`.read`).
    BulkWait(u32, bool),
    /// `stmatrix`: whether matrices are transposed.
    StoreMatrix(bool, Box<[Reg]>, Place),
}

impl Hopper {
    /// True if the instruction may synchronize only some warps of a block.
    pub(crate) fn is_partial(&self) -> bool {
        matches!(self, Self::Barrier(..) | Self::Mbarrier(..) | Self::Bulk(_))
    }

    /// True if the instruction accesses shared memory through the asynchronous proxy.
    pub(crate) fn is_async(&self) -> bool {
        matches!(self, Self::Wgmma(_) | Self::Bulk(_))
    }
}
