//! Device memory of a trial, released at its end.

use device::{Device, DeviceError, DevicePtr, Pinned, Stream};

/// Memory on a device, and the one stream that all work of a trial goes to.
pub(crate) struct Memory<'a> {
    pub(crate) device: &'a dyn Device,
    pub(crate) stream: Stream,
    owned: Vec<DevicePtr>,
    staging: Vec<Pinned>,
}

impl<'a> Memory<'a> {
    pub(crate) fn new(device: &'a dyn Device) -> Result<Self, DeviceError> {
        let stream = device.stream()?;
        Ok(Self { device, stream, owned: Vec::new(), staging: Vec::new() })
    }

    /// Memory whose contents are undefined.
    pub(crate) fn alloc(&mut self, bytes: usize) -> Result<DevicePtr, DeviceError> {
        let ptr = self.device.alloc(bytes)?;
        self.owned.push(ptr);
        Ok(ptr)
    }

    /// Memory that holds `bytes`.
    pub(crate) fn upload(&mut self, bytes: &[u8]) -> Result<DevicePtr, DeviceError> {
        let ptr = self.alloc(bytes.len())?;
        let pinned = self.device.alloc_pinned(bytes.len())?;
        self.staging.push(pinned);
        self.device.write_pinned(pinned, 0, bytes);
        self.device.upload(self.stream, ptr, pinned, 0, bytes.len())?;
        Ok(ptr)
    }

    /// What lies in memory now. Waits for all work.
    pub(crate) fn download(&self, ptr: DevicePtr, bytes: usize) -> Result<Vec<u8>, DeviceError> {
        let mut copy = vec![0; bytes];
        self.device.download(self.stream, ptr, &mut copy)?;
        Ok(copy)
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        // A device that fails here has failed the trial already.
        for ptr in self.owned.drain(..) {
            let _ = self.device.free(ptr);
        }
        for pinned in self.staging.drain(..) {
            let _ = self.device.free_pinned(pinned);
        }
    }
}

/// Four-byte words of `bytes`.
pub(crate) fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect()
}
