//! Counts known only to the device: `count [1] i32` is the number of filled rows of a buffer.

use rayon::prelude::*;

use crate::cpu::TensorRef;

/// Elements that a task clears.
const CHUNK: usize = 1 << 16;

/// A device-side count, as a number of rows within the capacity.
pub(crate) fn rows_in_use(count: &[i32], capacity: usize) -> usize {
    usize::try_from(count[0]).unwrap_or(0).min(capacity)
}

/// Number of filled rows among `capacity`; without a count all of them.
pub(crate) fn filled(count: Option<&TensorRef<'_>>, capacity: usize) -> usize {
    count.map_or(capacity, |count| rows_in_use(count.i32(), capacity))
}

/// Sets the rows past the count to zero.
pub(crate) fn clear(rows: &mut [f32]) {
    rows.par_chunks_mut(CHUNK).for_each(|rows| rows.fill(0.0));
}
