//! Decoded instructions.

use std::sync::Arc;

use super::hopper::Hopper;
pub(crate) use super::operand::{Address, CONSTANT, Place, Reg};
use crate::lanes::{Constants, Form, Lengths, MAX_REGISTERS};

/// Generic addresses of shared memory begin here, below all device memory.
pub(crate) const SHARED_WINDOW: u64 = 1 << 40;
/// Generic addresses of local memory begin here.
pub(crate) const LOCAL_WINDOW: u64 = 1 << 41;
/// Generic addresses of parameters begin here.
pub(crate) const PARAMETER_WINDOW: u64 = 3 << 40;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Special {
    /// Index of the thread in the block, by axis.
    Thread(u8),
    BlockSize(u8),
    Block(u8),
    GridSize(u8),
    Lane,
}

/// The state space that an access refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Where {
    Global,
    Shared,
    Local,
    Parameter,
    /// The address determines the space.
    Generic,
}

/// Type of an element in memory and in its register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Element {
    U8,
    S8,
    U16,
    S16,
    B32,
    /// 32 bits in a 64-bit register, zero-extended or sign-extended.
    U32In64,
    S32In64,
    B64,
}

impl Element {
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::S8 => 1,
            Self::U16 | Self::S16 => 2,
            Self::B32 | Self::U32In64 | Self::S32In64 => 4,
            Self::B64 => 8,
        }
    }

    pub(crate) fn is_double(self) -> bool {
        matches!(self, Self::U32In64 | Self::S32In64 | Self::B64)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) space: Where,
    pub(crate) element: Element,
    pub(crate) count: u8,
    /// Loaded through the read-only cache.
    pub(crate) read_only: bool,
    pub(crate) address: Address,
    pub(crate) registers: [Reg; 4],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Atomic {
    Add,
    Min,
    MinSigned,
    Max,
    MaxSigned,
    And,
    Or,
    Xor,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shuffle {
    Butterfly,
    Up,
    Down,
    Index,
}

/// Flag in the length of one of a call's copies: it copies a result, when the callee returns.
pub(crate) const RESULT: u32 = 1 << 31;

/// One instruction. Destinations come first.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    /// An instruction that accesses only registers.
    Lanes(&'static Form, [Reg; MAX_REGISTERS]),
    Special(Reg, Special),
    Clock(Reg),
    Load(Box<Access>),
    Store(Box<Access>),
    /// An atomic operation; the register, if any, gets the old value.
    Atomic(Atomic, Box<Access>, Option<Reg>),
    Shuffle(Shuffle, Box<[Reg; 6]>),
    Ballot([Reg; 3]),
    Match([Reg; 3]),
    Barrier,
    /// `bar.red.or.pred`: destination, source.
    BarrierOr(Reg, Reg),
    WarpBarrier(Reg),
    /// `ldmatrix`: whether matrices are transposed.
    LoadMatrix(Box<(bool, Box<[Reg]>, Place)>),
    /// Registers d, a, b, c of m16n8k16 with fp16, or (true) of m16n8k8 with tf32.
    Mma(bool, Box<[Reg; 14]>),
    /// `cp.async`: shared address, global address, bytes to read, bytes to write.
    CopyAsync(Address, Address, Reg, u8),
    CommitCopies,
    WaitCopies(u32),
    WaitAllCopies,
    Hopper(Box<Hopper>),
    /// An ordinary instruction that accesses registers that wgmmas use.
    Watched(Box<(Op, Box<[Reg]>)>),
    Branch(u32),
    /// The callee's first instruction, and the copies of arguments and results in local memory: to,
    /// from, bytes.
    Call(u32, Box<[(u32, u32, u32)]>),
    Return,
    Nothing,
}

/// One guarded instruction.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) op: Op,
    /// The guard's predicate, and whether it is negated.
    pub(crate) guard: Option<(Reg, bool)>,
    pub(crate) line: u32,
    pub(crate) source_line: u32,
}

/// The code of a kernel.
#[derive(Debug, Default)]
pub(crate) struct Program {
    pub(crate) steps: Vec<Step>,
    pub(crate) opcodes: Vec<Box<str>>,
    pub(crate) lengths: Lengths,
    /// True if an instruction may synchronize only some warps of a block.
    pub(crate) is_partial: bool,
    /// True if an instruction accesses shared memory through the asynchronous proxy.
    pub(crate) is_async: bool,
    /// Predicates, words and doubles that may be read before they are set.
    pub(crate) unset: [Vec<Reg>; 3],
    pub(crate) constants: Arc<Constants>,
}
