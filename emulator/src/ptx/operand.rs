//! Operands of instructions: registers, constants and addresses.

pub(crate) use crate::lanes::{CONSTANT, Reg};

/// `register + offset`; the register may be a constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) base: Reg,
    pub(crate) is_double: bool,
    pub(crate) offset: i32,
}

/// An address in shared memory, either an offset or generic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) address: Address,
    pub(crate) is_generic: bool,
}
