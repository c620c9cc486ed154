//! Slots with the inputs of a program: plain memory for the CPU, pinned memory for a device.

use std::sync::Arc;

use dali::loader::{self, PlainMemory, SlotLayout};
use device::PinnedBuffer;
use graph::exec::device::Prepared;
use graph::{CpuExecutor, GraphError};

use super::Backend;
use crate::error::EngineError;

/// Host memory of a slot.
#[derive(Debug)]
pub enum SlotMemory {
    /// Process memory.
    Plain(PlainMemory),
    /// Pinned memory, from which a device copies directly.
    Pinned(PinnedBuffer),
}

/// One batch of a program's inputs.
pub type Slot = loader::Slot<SlotMemory>;

impl Backend {
    /// Allocates a slot in the kind of memory that this backend needs.
    ///
    /// # Errors
    /// Device errors.
    pub fn slot(&self, layout: &Arc<SlotLayout>) -> Result<Slot, EngineError> {
        let memory = match self {
            Backend::Cpu => SlotMemory::Plain(PlainMemory::new(layout.bytes())),
            Backend::Device(device) => {
                let buffer = device.pinned_buffer(layout.bytes()).map_err(GraphError::from)?;
                SlotMemory::Pinned(buffer)
            }
        };
        Ok(Slot::new(layout.clone(), memory)?)
    }
}

impl SlotMemory {
    /// The pinned memory.
    ///
    /// # Panics
    /// If the slot was created for the CPU.
    pub fn pinned(&self) -> &PinnedBuffer {
        match self {
            SlotMemory::Pinned(buffer) => buffer,
            SlotMemory::Plain(_) => panic!("a slot of the CPU was given to a device"),
        }
    }
}

impl AsRef<[u8]> for SlotMemory {
    fn as_ref(&self) -> &[u8] {
        match self {
            SlotMemory::Plain(memory) => memory.as_ref(),
            SlotMemory::Pinned(buffer) => buffer.as_ref(),
        }
    }
}

impl AsMut<[u8]> for SlotMemory {
    fn as_mut(&mut self) -> &mut [u8] {
        match self {
            SlotMemory::Plain(memory) => memory.as_mut(),
            SlotMemory::Pinned(buffer) => buffer.as_mut(),
        }
    }
}

/// Copies a slot's arrays into a program's inputs on the CPU.
///
/// # Errors
/// An array that is not an input of the program.
pub(crate) fn copy_inputs<M: AsRef<[u8]> + AsMut<[u8]>>(
    executor: &mut CpuExecutor,
    slot: &loader::Slot<M>,
) -> Result<(), EngineError> {
    for (array, bytes) in slot.arrays() {
        executor.input_mut(&array.name)?.bytes_mut().copy_from_slice(bytes);
    }
    Ok(())
}

/// Checks that slot and program have the same input layout, so that all inputs can be copied at
/// once.
///
/// # Panics
/// If an array and the corresponding input have different offsets, or the program has more inputs.
pub(crate) fn same_layout(prepared: &Prepared, layout: &SlotLayout) {
    for (i, array) in layout.arrays().iter().enumerate() {
        let input = prepared.input_range(&array.name);
        assert_eq!(input, Some(layout.range(i)), "`{}` is elsewhere in the slot", array.name);
    }
    assert_eq!(prepared.input_bytes(), layout.bytes(), "the slot lacks inputs");
}
