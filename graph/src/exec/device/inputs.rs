//! The inputs of a step: copied from the caller's pinned memory, or written into the executor's
//! staging memory.

use device::{Device, DeviceCopy, DeviceError, DevicePtr, Event, PinnedBuffer, Stream};

use super::DeviceExecutor;
use crate::GraphError;

/// One of the two input buffers, used alternately.
#[derive(Debug)]
pub(super) struct InputBuffer {
    pub(super) memory: DevicePtr,
    /// Recorded after the copy into the buffer.
    pub(super) filled: Event,
    /// Recorded after the step that read it.
    pub(super) free: Event,
}

impl DeviceExecutor {
    /// Allocates staging memory for [`Self::write_input`].
    ///
    /// # Errors
    /// Device errors.
    pub fn with_staging(mut self) -> Result<Self, GraphError> {
        let buffer = || self.device.pinned_buffer(self.buffer_bytes);
        self.staging = Some([buffer()?, buffer()?]);
        Ok(self)
    }

    /// Writes the first bytes of an input of the next step; call it for every input in every step.
    /// The remaining bytes are undefined (left over from an earlier step, possibly of a different
    /// program); a program reads only the rows given by its counts. Waits only for the step before
    /// the last, which read the same memory.
    ///
    /// # Errors
    /// [`GraphError::UnknownTensor`] if the program has no such input; a device error.
    ///
    /// # Panics
    /// Panics without [`Self::with_staging`].
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

    /// Starts the copy of the next step's inputs from `from`, in place of [`Self::write_input`].
    /// The layout of the inputs is given by [`super::Prepared::input_range`]. `from` must not be
    /// written until the step is done. Waits only for the step before the last.
    ///
    /// # Errors
    /// Device errors.
    pub fn upload_inputs(&mut self, program: usize, from: &PinnedBuffer) -> Result<(), GraphError> {
        self.fill_buffer(program, |device, copies, buffer, bytes| {
            device.upload_from(copies, buffer, from, bytes)
        })
    }

    /// Like [`Self::upload_inputs`], from device memory that [`Self::keep_inputs`] has filled for
    /// the same program.
    ///
    /// # Errors
    /// Device errors.
    pub fn copy_kept_inputs(&mut self, program: usize, from: DevicePtr) -> Result<(), GraphError> {
        self.fill_buffer(program, |device, copies, to, bytes| {
            device.copy(copies, &DeviceCopy { to, from, bytes })
        })
    }

    /// Copies the inputs that were staged for the next step, which runs `program`, to the device
    /// memory `to`; the copy is complete before the inputs of any later step are staged.
    ///
    /// # Errors
    /// Device errors.
    ///
    /// # Panics
    /// Panics if no inputs were staged.
    pub fn keep_inputs(&mut self, program: usize, to: DevicePtr) -> Result<(), GraphError> {
        assert_eq!(self.brought, Some(program), "no inputs of this program were brought");
        let bytes = self.programs[program].input_bytes();
        let from = self.buffers[self.submitted as usize % 2].memory;
        Ok(self.device.copy(self.copies, &DeviceCopy { to, from, bytes })?)
    }

    /// Starts to fill the input buffer of the next step with `fill`, on the copy stream.
    fn fill_buffer(
        &mut self,
        program: usize,
        fill: impl FnOnce(&dyn Device, Stream, DevicePtr, usize) -> Result<(), DeviceError>,
    ) -> Result<(), GraphError> {
        self.until_done(self.submitted.wrapping_sub(1))?;
        let bytes = self.programs[program].input_bytes();
        let buffer = &self.buffers[self.submitted as usize % 2];
        let device = self.device.as_ref();
        // Waiting for an event that was never recorded returns at once.
        device.wait(self.copies, buffer.free)?;
        fill(device, self.copies, buffer.memory, bytes)?;
        device.record(buffer.filled, self.copies)?;
        device.wait(self.main, buffer.filled)?;
        self.brought = Some(program);
        Ok(())
    }

    /// Makes the main stream wait until the inputs of the next step are in their buffer.
    pub(super) fn take_inputs_of(&mut self, program: usize) -> Result<(), GraphError> {
        if let Some(brought) = self.brought.take() {
            assert_eq!(brought, program, "the inputs are of another program");
            return Ok(());
        }
        let Some(staging) = self.staging.take() else { panic!("a step without inputs") };
        let brought = self.upload_inputs(program, &staging[self.submitted as usize % 2]);
        self.staging = Some(staging);
        self.brought = None;
        brought
    }
}
