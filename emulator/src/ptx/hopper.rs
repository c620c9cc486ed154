//! Hopper instructions as executed.

use super::operand::{Address, Place, Reg};

/// Operand A: registers of each warp, or a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    Registers([Reg; 4]),
    Descriptor(Reg),
}

/// `wgmma.mma_async` with 64 rows: `d = a b`, or with the predicate `d += a b`.
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
    /// For each operand: its elements are negated, and its rows run along lines of memory.
    pub(crate) negated: [bool; 2],
    pub(crate) transposed: [bool; 2],
}

/// The phase that a wait tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The phase in a register written by an arrival.
    State(Reg),
    Parity(Reg),
}

/// An operation on an mbarrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mbarrier {
    Init(Reg),
    Invalidate,
    ExpectBytes(Reg),
    /// Destination of the state, arrivals, and bytes expected first.
    Arrive {
        state: Option<Reg>,
        count: Reg,
        bytes: Option<Reg>,
    },
    /// Destination of the result, and whether the warp may be suspended.
    Test(Reg, Phase, bool),
    /// `cp.async.mbarrier.arrive`, and whether its arrivals were counted at the start.
    CopiesArrive(bool),
}

/// A bulk copy between global and shared memory.
#[derive(Debug, Clone)]
pub(crate) struct Bulk {
    pub(crate) shared: Address,
    /// Global memory, or, with coordinates, a tensor map.
    pub(crate) global: Address,
    pub(crate) coordinates: Option<Box<[Reg]>>,
    /// Bytes of a copy without a map.
    pub(crate) bytes: Reg,
    /// The mbarrier signalled by a copy to shared memory; copies to global memory have a group.
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
    /// A named barrier: its number, its threads, and whether the warp waits.
    Barrier(Reg, Option<Reg>, bool),
    /// `fence.proxy.async`, only for shared memory.
    FenceProxy,
    /// `fence.mbarrier_init`.
    FenceBarriers,
    /// Leader, predicate, mask.
    Elect(Option<Reg>, Reg, Reg),
    Mbarrier(Mbarrier, Place),
    Bulk(Bulk),
    BulkCommit,
    /// All but this many groups; whether it is enough that their shared bytes were read.
    BulkWait(u32, bool),
    /// `stmatrix`: whether matrices are transposed.
    StoreMatrix(bool, Box<[Reg]>, Place),
}

impl Hopper {
    /// True if it orders warps of a block other than by barriers of the entire block.
    pub(crate) fn is_partial(&self) -> bool {
        matches!(self, Self::Barrier(..) | Self::Mbarrier(..) | Self::Bulk(_))
    }

    /// True if it accesses shared memory asynchronously to the warp.
    pub(crate) fn is_async(&self) -> bool {
        matches!(self, Self::Wgmma(_) | Self::Bulk(_))
    }
}
