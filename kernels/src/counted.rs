//! Counts that only the device knows: `count [1] i32` says how many rows of a buffer are filled.

use crate::cpu::TensorRef;
use crate::op::check;
use crate::{DType, OpError, TensorDesc};

/// Checks the description of a count input.
///
/// # Errors
/// If it is not `[1] i32`.
pub(crate) fn check_count(op: &'static str, count: &TensorDesc) -> Result<(), OpError> {
    check::shape(op, "count", count, &[1])?;
    check::dtype(op, "count", count, DType::I32)
}

/// Number of filled rows among `capacity`; without a count all of them.
pub(crate) fn filled(count: Option<&TensorRef<'_>>, capacity: usize) -> usize {
    count.map_or(capacity, |c| usize::try_from(c.i32()[0]).unwrap_or(0).min(capacity))
}
