//! Instructions as the executor runs them.

use super::hopper::Hopper;
pub(crate) use super::operand::{Address, CONSTANT, Place, Reg};

/// Generic addresses of shared memory begin here, below all of device memory.
pub(crate) const SHARED_WINDOW: u64 = 1 << 40;
/// Generic addresses of local memory begin here.
pub(crate) const LOCAL_WINDOW: u64 = 1 << 41;
/// Generic addresses of parameters begin here.
pub(crate) const PARAMETER_WINDOW: u64 = 3 << 40;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Int {
    Add,
    Sub,
    Mul,
    MulHighSigned,
    MulHigh,
    DivSigned,
    Div,
    RemSigned,
    Rem,
    MinSigned,
    Min,
    MaxSigned,
    Max,
    And,
    Or,
    Xor,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shift {
    Left,
    Right,
    RightSigned,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Float {
    Add,
    Sub,
    Mul,
    Div,
    Min,
    Max,
    /// A sum rounded toward zero.
    AddToZero,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unary {
    Not,
    Neg,
    Abs,
    Popc,
    Clz,
    Brev,
    /// `bfind.shiftamt`.
    LeadingShift,
    NotHalf,
    NegHalf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FloatUnary {
    Neg,
    Abs,
    Sqrt,
    Reciprocal,
    /// `ex2.approx.ftz`.
    Exp2,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Equ,
    Neu,
    Ltu,
    Leu,
    Gtu,
    Geu,
    Num,
    Nan,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compared {
    U32,
    S32,
    U64,
    S64,
    F32,
    F64,
    S16,
}

/// Arithmetic that reads or writes the carry flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carry {
    Add,
    Sub,
    MadLow,
    MadHigh,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Round {
    Nearest,
    Down,
    Up,
    Zero,
}

/// Conversions, from and to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Convert {
    S32S64,
    /// The low half of a 64-bit register, with its sign.
    LowS64,
    U32U64,
    U16U64,
    U64U32,
    U64U16,
    U32U16,
    S32S8,
    F16F32,
    F32F16,
    F32Tf32,
    F32F64,
    F64F32,
    F32Sat,
    F32Integral(Round),
    F64Integral(Round),
    S32F32,
    U32F32,
    U16F32,
    F32S32(Round),
    F32U32(Round),
    S32F64,
    U32F64,
    S64F64,
    U64F64,
    F64S32(Round),
    F64S64(Round),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Special {
    /// Index in the block, by axis.
    Thread(u8),
    BlockSize(u8),
    Block(u8),
    GridSize(u8),
    Lane,
}

/// Which memory an access reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Where {
    Global,
    Shared,
    Local,
    Parameter,
    /// The address decides.
    Generic,
}

/// An element in memory and in its register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Element {
    U8,
    S8,
    U16,
    S16,
    B32,
    /// 32 bits in a register of 64, without and with sign.
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
    /// Loaded through the cache that assumes nobody writes.
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

/// Marks a call's copy that is made at the return.
pub(crate) const RESULT: u32 = 1 << 31;

/// One instruction. Destinations come first.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    Int32(Int, Reg, Reg, Reg),
    Int64(Int, Reg, Reg, Reg),
    Shift32(Shift, Reg, Reg, Reg),
    /// A shift of 64 bits by a register of 32.
    Shift64(Shift, Reg, Reg, Reg),
    /// 32 by 32 to 64 bits.
    Wide(bool, Reg, Reg, Reg),
    Mad32(Reg, Reg, Reg, Reg),
    Mad64(Reg, Reg, Reg, Reg),
    /// The flags: it reads the carry flag, it writes the carry flag.
    Carry(Carry, bool, bool, [Reg; 4]),
    Float32(Float, Reg, Reg, Reg),
    Float64(Float, Reg, Reg, Reg),
    Fma32(Round, [Reg; 4]),
    Fma64([Reg; 4]),
    Unary32(Unary, Reg, Reg),
    Unary64(Unary, Reg, Reg),
    /// A count of 64 bits into a register of 32.
    Count64(Unary, Reg, Reg),
    FloatUnary32(FloatUnary, Reg, Reg),
    FloatUnary64(FloatUnary, Reg, Reg),
    Set(Compare, Compared, Reg, Reg, Reg),
    Select32(Reg, Reg, Reg, Reg),
    Select64(Reg, Reg, Reg, Reg),
    Move32(Reg, Reg),
    Move64(Reg, Reg),
    MovePredicate(Reg, Reg),
    /// And, Or, Xor of predicates.
    Predicate(Int, Reg, Reg, Reg),
    NotPredicate(Reg, Reg),
    Special(Reg, Special),
    Clock(Reg),
    /// Two halves of 16 bits.
    Pack32(Reg, Reg, Reg),
    Unpack32(Reg, Reg, Reg),
    Pack64(Reg, Reg, Reg),
    Unpack64(Reg, Reg, Reg),
    /// Two floats to two halves; the first is the upper one.
    PackHalves(Reg, Reg, Reg),
    Convert(Convert, Reg, Reg),
    InsertBits32([Reg; 5]),
    InsertBits64([Reg; 5]),
    Permute([Reg; 4]),
    FunnelLeftWrap([Reg; 4]),
    Load(Box<Access>),
    Store(Box<Access>),
    /// With the register that takes the old value, if any.
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
    /// d, a, b, c of m16n8k16 with halves, or of m16n8k8 with tf32.
    Mma(bool, Box<[Reg; 14]>),
    /// Shared address, global address, bytes of the source, bytes of the copy.
    CopyAsync(Address, Address, Reg, u8),
    CommitCopies,
    WaitCopies(u32),
    WaitAllCopies,
    Hopper(Box<Hopper>),
    /// An instruction that touches registers of products.
    Watched(Box<(Op, Box<[Reg]>)>),
    Branch(u32),
    /// Instruction, and copies of arguments and results in local memory: to, from, bytes.
    Call(u32, Box<[(u32, u32, u32)]>),
    Return,
    Nothing,
}

/// One guarded instruction.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) op: Op,
    /// Predicate, and whether it is negated.
    pub(crate) guard: Option<(Reg, bool)>,
    pub(crate) line: u32,
    pub(crate) source_line: u32,
}

/// The code of a kernel.
#[derive(Debug, Default)]
pub(crate) struct Program {
    pub(crate) steps: Vec<Step>,
    pub(crate) opcodes: Vec<Box<str>>,
    /// Lengths of the register files of a warp.
    pub(crate) words: usize,
    pub(crate) doubles: usize,
    pub(crate) predicates: usize,
    /// Some instruction orders a part of a block's warps.
    pub(crate) is_partial: bool,
    /// Some instruction reaches shared memory by the asynchronous proxy.
    pub(crate) is_async: bool,
    /// Predicates, words and doubles that some path reads before it sets them.
    pub(crate) unset: [Vec<Reg>; 3],
    /// Constants, once for each lane.
    pub(crate) word_constants: Vec<[u32; 32]>,
    pub(crate) double_constants: Vec<[u64; 32]>,
}
