//! Images of an evaluation that stay on the device: decoded and copied once, not in each
//! evaluation.

use std::collections::HashMap;
use std::sync::Arc;

use device::{Device, DevicePtr};
use graph::GraphError;

use crate::error::EngineError;
use crate::runtime::Backend;

/// The inputs of batches, as their programs read them, in device memory. On the CPU nothing is
/// kept.
#[derive(Debug)]
pub(super) struct KeptInputs {
    device: Option<Arc<dyn Device>>,
    /// By the batch's images, as positions in the data set.
    batches: HashMap<Vec<usize>, DevicePtr>,
    bytes: usize,
    /// Most bytes to keep; known at the first batch, when all programs have their memory.
    most: Option<usize>,
}

impl KeptInputs {
    /// Keeps nothing.
    pub(super) fn nothing() -> Self {
        Self { device: None, batches: HashMap::new(), bytes: 0, most: None }
    }

    /// Keeps batches that run from now on.
    pub(super) fn on(backend: &Backend) -> Self {
        let device = match backend {
            Backend::Device(device) => Some(device.clone()),
            Backend::Cpu => None,
        };
        Self { device, batches: HashMap::new(), bytes: 0, most: None }
    }

    /// Where the inputs of a batch are, if they were kept.
    pub(super) fn of(&self, batch: &[usize]) -> Option<DevicePtr> {
        self.batches.get(batch).copied()
    }

    /// Memory for `bytes` bytes of the inputs of a batch, for [`Self::keep`] or [`Self::give_up`];
    /// `None` if no more are to be kept. Half of the initially free memory is left for other uses.
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
            // The error that prevented filling it is reported instead.
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
            // The device may be gone, and an error cannot be reported here.
            let _ = device.free(*memory);
        }
    }
}
