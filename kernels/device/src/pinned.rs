//! Pinned host memory that its owner fills in place, for copies to a device.

use std::any::Any;
use std::fmt::Debug;

/// The memory behind a [`PinnedBuffer`]: a type defined by the device.
pub trait PinnedBytes: Any + Debug + Send + Sync {
    /// The bytes.
    fn bytes(&self) -> &[u8];

    /// The bytes, for writing.
    ///
    /// # Panics
    /// While a copy to the device may still read them.
    fn bytes_mut(&mut self) -> &mut [u8];
}

/// Pinned host memory with one owner, on any thread: the source of
/// [`Device::upload_from`](super::Device::upload_from). Kernels get no pointer to it.
///
/// Writing panics while a copy that reads the buffer is in flight. Dropping it waits for the copy.
#[derive(Debug)]
pub struct PinnedBuffer {
    memory: Box<dyn PinnedBytes>,
}

impl PinnedBuffer {
    /// Takes ownership of memory that a device has pinned.
    pub fn new(memory: impl PinnedBytes) -> Self {
        Self { memory: Box::new(memory) }
    }

    /// The device's concrete type.
    ///
    /// # Panics
    /// If the buffer is from a different kind of device.
    pub fn memory<T: PinnedBytes>(&self) -> &T {
        let memory: &dyn Any = self.memory.as_ref();
        memory.downcast_ref().unwrap_or_else(|| panic!("{self:?} is not of this device"))
    }
}

impl AsRef<[u8]> for PinnedBuffer {
    fn as_ref(&self) -> &[u8] {
        self.memory.bytes()
    }
}

impl AsMut<[u8]> for PinnedBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self.memory.bytes_mut()
    }
}
