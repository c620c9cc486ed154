//! From the store into slots whose memory the caller supplies (and may have pinned), ahead of the
//! training.
//!
//! A [`Slot`] is one block of memory with the arrays of a [`SlotLayout`]. [`fill_slot`] decodes a
//! batch into one, in place; [`Loader`] does it on its own threads, and slots go round between it
//! and the caller. Arrays that this module does not know are filled by a [`Filler`] of the
//! caller's.

mod fill;
mod layout;
mod prefetch;
mod slot;

pub use fill::{Filler, fill_slot};
pub use layout::{Array, Clear, Element, Item, SlotLayout};
pub use prefetch::{Batch, Filled, Loader};
pub use slot::{ImageRows, PlainMemory, SEGM_POLYGONS, SEGM_RUNS, Slot};
