//! Operands of instructions: registers, constants and addresses.

/// A register's number in its file, or with [`CONSTANT`] that of a constant. Predicates have two
/// constants, false and true.
pub(crate) type Reg = u16;

/// Marks the number of a constant.
pub(crate) const CONSTANT: Reg = 1 << 15;

/// `register + offset`; the register may be a constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) base: Reg,
    pub(crate) is_double: bool,
    pub(crate) offset: i32,
}

/// An address in shared memory, or one that names its space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) address: Address,
    pub(crate) is_generic: bool,
}
