//! State in device memory: weights, momentum, counters, shared by all programs of a device.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::{Device, DevicePtr, Pinned, Stream};
use kernels::on_device::{device_bytes, host_tensor};
use kernels::{Precision, TensorDesc};

use crate::plan::ALIGNMENT;
use crate::{GraphError, Program, StateSet};

/// Maximum bytes of pinned staging memory for an upload.
const STAGING_BYTES: usize = 64 << 20;

/// Named tensors in device memory. Tensors that were listed as mapped at creation are in mapped
/// host memory instead, which kernels write and the host reads without a copy.
#[derive(Debug)]
pub struct DeviceState {
    device: Arc<dyn Device>,
    stream: Stream,
    precision: Precision,
    memory: DevicePtr,
    bytes: usize,
    entries: BTreeMap<String, Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    desc: TensorDesc,
    ptr: DevicePtr,
    pinned: Option<Pinned>,
}

impl DeviceState {
    /// Allocates memory for the state that `programs` declare, filled from `values`. State listed
    /// in `mapped` is in mapped host memory.
    ///
    /// # Errors
    /// State is missing from `values` or has a different shape; device errors.
    pub fn new(
        device: Arc<dyn Device>,
        programs: &[&Program],
        mapped: &[&str],
        values: &StateSet,
    ) -> Result<Self, GraphError> {
        Self::in_precision(Precision::Fp16, device, programs, mapped, values)
    }

    /// Like [`Self::new`], for programs planned in `precision`.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn in_precision(
        precision: Precision,
        device: Arc<dyn Device>,
        programs: &[&Program],
        mapped: &[&str],
        values: &StateSet,
    ) -> Result<Self, GraphError> {
        let mut entries: BTreeMap<String, Entry> = BTreeMap::new();
        let mut bytes = 0;
        for program in programs {
            values.bind(program)?;
            for (_, tensor) in program.states() {
                if entries.contains_key(&tensor.name) {
                    continue;
                }
                let desc = tensor.desc.clone();
                let (ptr, pinned) = if mapped.contains(&tensor.name.as_str()) {
                    let pinned = device.alloc_pinned(desc.gpu_bytes(precision))?;
                    (pinned.device_ptr, Some(pinned))
                } else {
                    bytes += desc.gpu_bytes(precision).next_multiple_of(ALIGNMENT);
                    (bytes as DevicePtr, None)
                };
                entries.insert(tensor.name.clone(), Entry { desc, ptr, pinned });
            }
        }
        let memory = device.alloc(bytes)?;
        for entry in entries.values_mut().filter(|e| e.pinned.is_none()) {
            let taken = entry.desc.gpu_bytes(precision).next_multiple_of(ALIGNMENT) as DevicePtr;
            entry.ptr = memory + entry.ptr - taken;
        }
        let stream = device.stream()?;
        let state = Self { device, stream, precision, memory, bytes, entries };
        state.upload(values)?;
        Ok(state)
    }

    /// The precision of the state on the device.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Bytes of device memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Names and descriptions of all tensors.
    pub fn descs(&self) -> impl Iterator<Item = (&str, &TensorDesc)> {
        self.entries.iter().map(|(name, entry)| (name.as_str(), &entry.desc))
    }

    /// Address of a state tensor.
    pub fn ptr(&self, name: &str) -> Option<DevicePtr> {
        self.entries.get(name).map(|e| e.ptr)
    }

    /// The host memory of a mapped tensor.
    pub fn mapped(&self, name: &str) -> Option<Pinned> {
        self.entries.get(name).and_then(|e| e.pinned)
    }

    /// Overwrites the device's state with `values`, rounded to the device's types. Waits for the
    /// device.
    ///
    /// # Errors
    /// [`GraphError::MissingState`], before anything is overwritten; device errors.
    pub fn upload(&self, values: &StateSet) -> Result<(), GraphError> {
        if let Some(name) = self.entries.keys().find(|name| values.get(name).is_none()) {
            return Err(GraphError::MissingState(name.clone()));
        }
        self.device.synchronize()?;
        let staging = self.device.alloc_pinned(self.bytes.min(STAGING_BYTES))?;
        let sent = self.send(values, staging);
        self.device.free_pinned(staging)?;
        sent
    }

    /// Copies all tensors to the device through `staging`, in the order of their addresses.
    fn send(&self, values: &StateSet, staging: Pinned) -> Result<(), GraphError> {
        let mut entries: Vec<_> = self.entries.iter().collect();
        entries.sort_by_key(|(_, entry)| entry.ptr);
        let mut filled = 0;
        let mut sent = 0;
        for (name, entry) in entries {
            let missing = || GraphError::MissingState(name.clone());
            let mut tensor = values.get(name).ok_or_else(missing)?.clone();
            // The set may contain the f32 master weight under the name of a device weight: convert
            // its role.
            tensor.desc = entry.desc.clone();
            let mut bytes = device_bytes(self.precision, &tensor);
            if let Some(pinned) = entry.pinned {
                self.device.write_pinned(pinned, 0, &bytes);
                continue;
            }
            bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(staging.bytes - filled));
                self.device.write_pinned(staging, filled, now);
                filled += now.len();
                rest = later;
                if filled == staging.bytes || sent + filled == self.bytes {
                    let to = self.memory + sent as DevicePtr;
                    self.device.upload(self.stream, to, staging, 0, filled)?;
                    self.device.synchronize()?;
                    sent += filled;
                    filled = 0;
                }
            }
        }
        Ok(())
    }

    /// Copies the device's state into `values`, with floats widened to f32. Waits for the device.
    ///
    /// # Errors
    /// Device errors.
    pub fn download(&self, values: &mut StateSet) -> Result<(), GraphError> {
        self.device.synchronize()?;
        for (name, entry) in &self.entries {
            let mut bytes = vec![0; entry.desc.gpu_bytes(self.precision)];
            match entry.pinned {
                Some(pinned) => self.device.read_pinned(pinned, 0, &mut bytes),
                None => self.device.download(self.stream, entry.ptr, &mut bytes)?,
            }
            values.insert(name, host_tensor(self.precision, &entry.desc, &bytes));
        }
        Ok(())
    }
}

impl Drop for DeviceState {
    fn drop(&mut self) {
        // The error is ignored: a failing device has already reported one.
        let _ = self.device.free(self.memory);
        for pinned in self.entries.values().filter_map(|e| e.pinned) {
            let _ = self.device.free_pinned(pinned);
        }
        self.device.free_stream(self.stream);
    }
}
