//! Instructions of Hopper as the executor runs them.

use super::operand::{Address, Place, Reg};

/// The left factor: registers of each warp, or a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    Registers([Reg; 4]),
    Descriptor(Reg),
}

/// `wgmma.mma_async` of 64 rows: `d = a b`, or with the predicate `d += a b`.
#[derive(Debug, Clone)]
pub(crate) struct Product {
    pub(crate) columns: usize,
    /// Factors are bf16, not f16.
    pub(crate) is_brain: bool,
    /// Two sums of 16 bits in each register, not one of 32.
    pub(crate) has_half_sums: bool,
    pub(crate) d: Box<[Reg]>,
    pub(crate) a: Left,
    /// Descriptor of the right factor.
    pub(crate) b: Reg,
    pub(crate) adds: Reg,
    /// For each factor: its elements are negated, and its rows run along lines of memory.
    pub(crate) negated: [bool; 2],
    pub(crate) transposed: [bool; 2],
}

/// The phase that a wait asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The phase in a register that an arrival has written.
    State(Reg),
    Parity(Reg),
}

/// An operation on an mbarrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mbarrier {
    Init(Reg),
    Invalidate,
    ExpectBytes(Reg),
    /// Where the state goes, arrivals, and bytes that are expected first.
    Arrive {
        state: Option<Reg>,
        count: Reg,
        bytes: Option<Reg>,
    },
    /// Where the answer goes, and whether the warp may be suspended.
    Test(Reg, Phase, bool),
    /// `cp.async.mbarrier.arrive`, and whether its arrivals were counted at the start.
    CopiesArrive(bool),
}

/// A bulk copy between global and shared memory.
#[derive(Debug, Clone)]
pub(crate) struct Bulk {
    pub(crate) shared: Address,
    /// Global memory, or with coordinates a tensor map.
    pub(crate) global: Address,
    pub(crate) coordinates: Option<Box<[Reg]>>,
    /// Bytes of a copy without a map.
    pub(crate) bytes: Reg,
    /// The barrier that a copy to shared memory completes; one to global memory belongs to a group.
    pub(crate) barrier: Option<Address>,
}

#[derive(Debug, Clone)]
pub(crate) enum Hopper {
    /// `wgmma.fence`.
    Fence,
    Product(Product),
    /// `wgmma.commit_group` and `wgmma.wait_group`.
    Commit,
    Wait(u32),
    /// `setmaxnreg`: all of the warp, and nothing more.
    Registers,
    /// A named barrier: its number, its threads, and whether the warp waits.
    Barrier(Reg, Option<Reg>, bool),
    /// `fence.proxy.async`, as far as it is of shared memory.
    FenceProxy,
    /// `fence.mbarrier_init`.
    FenceBarriers,
    /// Leader, predicate, mask.
    Elect(Option<Reg>, Reg, Reg),
    Mbarrier(Mbarrier, Place),
    Bulk(Bulk),
    BulkCommit,
    /// All but so many groups; whether it is enough that their shared bytes were read.
    BulkWait(u32, bool),
    /// `stmatrix`: whether matrices are transposed.
    StoreMatrix(bool, Box<[Reg]>, Place),
}

impl Hopper {
    /// True if warps of a block go on in an order that barriers of the whole block do not define.
    pub(crate) fn is_partial(&self) -> bool {
        matches!(self, Self::Barrier(..) | Self::Mbarrier(..) | Self::Bulk(_))
    }

    /// True if it reads or writes shared memory asynchronously to the warp.
    pub(crate) fn is_async(&self) -> bool {
        matches!(self, Self::Product(_) | Self::Bulk(_))
    }
}
