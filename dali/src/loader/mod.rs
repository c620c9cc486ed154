//! Loads images from the store into slots in the caller's memory (which may be pinned), ahead of
//! training.
//!
//! A [`Slot`] is one allocation with the arrays of a [`SlotLayout`]. [`fill_slot`] decodes a batch
//! into one, in place; [`Loader`] does so on its own threads, and slots circulate between it and
//! the caller. The caller's [`Filler`] fills all other arrays.

mod fill;
mod layout;
mod prefetch;
mod slot;

pub use fill::{Batch, Filler, fill_slot};
pub use layout::{Array, Clear, Element, Item, SlotLayout};
pub use prefetch::{Filled, Loader};
pub use slot::{ImageRows, PlainMemory, SEGM_POLYGONS, SEGM_RUNS, Slot};
