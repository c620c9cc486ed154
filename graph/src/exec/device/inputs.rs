//! How a step gets its inputs: from pinned memory of the caller's, or from what was written here.

use device::{DevicePtr, Event, PinnedBuffer};

use super::DeviceExecutor;
use crate::GraphError;

/// One of the two places that inputs alternate between.
#[derive(Debug)]
pub(super) struct InputBuffer {
    pub(super) memory: DevicePtr,
    /// Marks the end of the copy into the buffer.
    pub(super) filled: Event,
    /// Marks the end of the step that read it.
    pub(super) free: Event,
}

impl DeviceExecutor {
    /// Gives the executor memory of its own for [`Self::write_input`].
    ///
    /// # Errors
    /// The device's own.
    pub fn with_staging(mut self) -> Result<Self, GraphError> {
        let buffer = || self.device.pinned_buffer(self.buffer_bytes);
        self.staging = Some([buffer()?, buffer()?]);
        Ok(self)
    }

    /// Writes the head of an input of the next step; each is written for each step. What follows
    /// the head holds anything: bytes of an earlier step, maybe of another program. A program reads
    /// no more of it than its counts say. Waits only for the last step but one, which read the same
    /// memory.
    ///
    /// # Errors
    /// [`GraphError::UnknownTensor`] if the program has no such input; a fault of the device.
    ///
    /// # Panics
    /// Without [`Self::with_staging`].
    pub fn write_input(
        &mut self,
        program: usize,
        name: &str,
        bytes: &[u8],
    ) -> Result<(), GraphError> {
        self.until_done(self.submitted.wrapping_sub(1))?;
        let range = self.programs[program].input_range(name);
        let range = range.ok_or_else(|| GraphError::UnknownTensor(name.to_string()))?;
        let room = range.len();
        assert!(bytes.len() <= room, "{} bytes for `{name}`, which has {room}", bytes.len());
        let Some(staging) = &mut self.staging else { panic!("an executor without staging") };
        let memory = staging[self.submitted as usize % 2].as_mut();
        memory[range.start..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    /// Starts the copy of the next step's inputs, in place of what [`Self::write_input`] wrote.
    /// They lie in `from` as [`Prepared::input_range`] says; it cannot be written until the copy is
    /// done, which it is when the step is. Waits only for the last step but one.
    ///
    /// # Errors
    /// The device's own.
    pub fn bring_inputs(&mut self, program: usize, from: &PinnedBuffer) -> Result<(), GraphError> {
        self.until_done(self.submitted.wrapping_sub(1))?;
        let bytes = self.programs[program].input_bytes();
        let buffer = &self.buffers[self.submitted as usize % 2];
        let device = self.device.as_ref();
        // An event that was never recorded holds nobody up.
        device.wait(self.copies, buffer.free)?;
        device.upload_from(self.copies, buffer.memory, from, bytes)?;
        device.record(buffer.filled, self.copies)?;
        device.wait(self.main, buffer.filled)?;
        self.brought = Some(program);
        Ok(())
    }

    /// What follows on the main stream finds the inputs of the next step in their buffer.
    pub(super) fn take_inputs_of(&mut self, program: usize) -> Result<(), GraphError> {
        if let Some(brought) = self.brought.take() {
            assert_eq!(brought, program, "the inputs are of another program");
            return Ok(());
        }
        let Some(staging) = self.staging.take() else { panic!("a step without inputs") };
        let brought = self.bring_inputs(program, &staging[self.submitted as usize % 2]);
        self.staging = Some(staging);
        self.brought = None;
        brought
    }
}
