//! Keeps the images of an evaluation on the device, so that later evaluations neither decode nor
//! copy them again.

use std::collections::HashMap;
use std::sync::Arc;

use device::{Device, DevicePtr};
use graph::GraphError;

use crate::error::EngineError;
use crate::runtime::Backend;

/// Input slots of batches, kept in device memory. On the CPU nothing is kept.
#[derive(Debug)]
pub(super) struct KeptInputs {
    device: Option<Arc<dyn Device>>,
    /// Memory of each batch. The key lists the batch's images, by position in the data set.
    batches: HashMap<Vec<usize>, DevicePtr>,
    bytes: usize,
    /// Maximum number of bytes to keep; set at the first batch, when all programs have allocated
    /// their memory.
    most: Option<usize>,
}

impl KeptInputs {
    /// Keeps nothing.
    pub(super) fn nothing() -> Self {
        Self { device: None, batches: HashMap::new(), bytes: 0, most: None }
    }

    /// Keeps the inputs of batches from now on, if the backend is a device.
    pub(super) fn on(backend: &Backend) -> Self {
        let device = match backend {
            Backend::Device(device) => Some(device.clone()),
            Backend::Cpu => None,
        };
        Self { device, batches: HashMap::new(), bytes: 0, most: None }
    }

    /// Address of a batch's inputs, if they were kept.
    pub(super) fn of(&self, batch: &[usize]) -> Option<DevicePtr> {
        self.batches.get(batch).copied()
    }

    /// Allocates `bytes` bytes for a batch's inputs; pass the address to [`Self::keep`] or
    /// [`Self::give_up`]. Returns `None` if the inputs should not be kept: half of the initially
    /// free memory is left for other uses.
    ///
    /// # Errors
    /// Device errors.
    pub(super) fn room(&mut self, bytes: usize) -> Result<Option<DevicePtr>, EngineError> {
        let Some(device) = &self.device else { return Ok(None) };
        let most = match self.most {
            Some(most) => most,
            None => *self.most.insert(device.memory().map_err(GraphError::from)?.free / 2),
        };
        if self.bytes + bytes > most {
            return Ok(None);
        }
        Ok(Some(device.alloc(bytes).map_err(GraphError::from)?))
    }

    /// Records that the inputs of `batch` are in `memory` of `bytes` bytes.
    pub(super) fn keep(&mut self, batch: &[usize], memory: DevicePtr, bytes: usize) {
        self.bytes += bytes;
        self.batches.insert(batch.to_vec(), memory);
    }

    /// Frees memory that was not filled.
    pub(super) fn give_up(&self, memory: DevicePtr) {
        if let Some(device) = &self.device {
            // An error of `free` is ignored: the caller reports the error that prevented filling
            // the memory.
            let _ = device.free(memory);
        }
    }

    /// Bytes kept.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for KeptInputs {
    fn drop(&mut self) {
        let Some(device) = &self.device else { return };
        for memory in self.batches.values() {
            // Errors are ignored: the device may have failed, and `drop` cannot report them.
            let _ = device.free(*memory);
        }
    }
}
