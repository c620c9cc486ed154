//! Loads images from the stores into slots in the caller's memory (which may be pinned), ahead of
//! their use in training.
//!
//! A [`Slot`] is one allocation with the arrays of a [`SlotLayout`]. [`fill_slot`] decodes a batch
//! directly into a slot. [`Loader`] calls it on its own threads, and exchanges slots with the
//! caller. The caller's [`Filler`] fills all additional arrays.

mod fill;
mod layout;
mod prefetch;
mod slot;

pub use fill::{Batch, Filler, fill_slot};
pub use layout::{Array, Clear, Element, Item, SlotLayout};
pub use prefetch::{Filled, Loader};
pub use slot::{ImageRows, PlainMemory, SEGM_POLYGONS, SEGM_RUNS, Slot};
