//! From the store into slots that the caller owns (and may have pinned), ahead of the training.
//!
//! [`fill_slot`] decodes a batch into a [`Slot`], which is only borrowed slices; [`Loader`] does it
//! on its own threads into [`OwnedSlot`]s that go round between it and the caller.

mod fill;
mod prefetch;
mod slot;

pub use fill::fill_slot;
pub use prefetch::{Batch, Filled, Loader};
pub use slot::{OwnedSlot, SEGM_POLYGONS, SEGM_RUNS, Slot, SlotShape};
