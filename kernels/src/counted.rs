//! Counts known only to the device: `count [1] i32` is the number of rows of a buffer in use. Rows
//! past it may hold any values, unless the op that writes them states otherwise.

use crate::cpu::TensorRef;

/// A device-side count, as a number of rows within the capacity.
pub(crate) fn rows_in_use(count: &[i32], capacity: usize) -> usize {
    usize::try_from(count[0]).unwrap_or(0).min(capacity)
}

/// Number of rows in use among `capacity`; without a count all of them.
pub(crate) fn used_rows(count: Option<&TensorRef<'_>>, capacity: usize) -> usize {
    count.map_or(capacity, |count| rows_in_use(count.i32(), capacity))
}
