//! A model's state: always readable on the host, and on the device while it trains there.
//!
//! On the host a weight is its f32 value, under its own name. On a device that reads weights as
//! fp16 the value is the master's, and the fp16 copy follows from it. So a checkpoint does not
//! depend on the device that wrote it.

use std::sync::Arc;

use device::Device;
use graph::exec::device::{Prepared, SharedArena};
use graph::{DeviceState, Program, StateSet};
use kernels::DType;

use crate::error::EngineError;
use crate::model::{MASTER, RING, RING_STEP};

/// Weights, momentum and counters of a model.
#[derive(Debug)]
pub struct ModelState {
    host: StateSet,
    memory: Option<Arc<DeviceState>>,
    /// Values of programs on a device. Whoever runs one holds the state, and sees the run to its
    /// end before it lets go: so they all take turns in one arena.
    arena: Option<Arc<SharedArena>>,
}

impl ModelState {
    /// State that lives on the host.
    pub fn host(set: StateSet) -> Self {
        Self { host: set, memory: None, arena: None }
    }

    /// State that lives on a device, as `programs` declare it, filled from `set`.
    ///
    /// # Errors
    /// The device's own.
    pub fn on_device(
        set: StateSet,
        device: Arc<dyn Device>,
        programs: &[&Program],
    ) -> Result<Self, EngineError> {
        let host = without_device_names(&set);
        let values = of_device(&host, programs);
        let memory = DeviceState::new(device, programs, &[RING], &values)?;
        Ok(Self { host, memory: Some(Arc::new(memory)), arena: None })
    }

    /// Where it is on the device.
    pub fn memory(&self) -> Option<&Arc<DeviceState>> {
        self.memory.as_ref()
    }

    /// Memory on `device` for the values of `programs`: that of programs before them, if it holds
    /// them. What a run left there lasts until another program runs on this state.
    ///
    /// # Errors
    /// The device's own.
    pub fn arena(
        &mut self,
        device: &Arc<dyn Device>,
        programs: &[&Prepared],
    ) -> Result<Arc<SharedArena>, EngineError> {
        let bytes = programs.iter().map(|p| p.plan.arena_bytes()).max().unwrap_or(0);
        if let Some(arena) = self.arena.as_ref().filter(|arena| arena.bytes() >= bytes) {
            return Ok(arena.clone());
        }
        let arena = Arc::new(SharedArena::new(device.clone(), programs)?);
        Ok(self.arena.insert(arena).clone())
    }

    /// The state as it is now, brought back from the device if it is there. Waits for the device.
    ///
    /// # Errors
    /// The device's own.
    pub fn fetch(&mut self) -> Result<&StateSet, EngineError> {
        let set = self.download()?;
        self.take(&set);
        Ok(&self.host)
    }

    /// What the device holds; nothing if the state is on the host.
    fn download(&self) -> Result<StateSet, EngineError> {
        let mut set = StateSet::new();
        if let Some(memory) = &self.memory {
            memory.download(&mut set)?;
        }
        Ok(set)
    }

    /// Takes over what a device held. An fp16 copy says nothing that the host does not know better:
    /// it is the master, rounded, or a frozen weight that no program changes.
    fn take(&mut self, set: &StateSet) {
        for (name, tensor) in without_device_names(set).iter() {
            if tensor.desc.role.cuda_dtype() != DType::F16 {
                self.host.insert(name, tensor.clone());
            }
        }
        for (name, master) in set.iter() {
            if let Some(weight) = name.strip_prefix(MASTER) {
                self.host.insert(weight, master.clone());
            }
        }
    }

    /// Changes the state on the host, and on the device if it is there. What the device counts for
    /// its ring goes on.
    ///
    /// # Errors
    /// What `change` says; the device's own.
    pub fn change<T>(
        &mut self,
        change: impl FnOnce(&mut StateSet) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        let set = self.download()?;
        self.take(&set);
        let result = change(&mut self.host)?;
        if let Some(memory) = &self.memory {
            let mut values = self.host.clone();
            add_device_names(&mut values, memory.descs());
            for name in [RING, RING_STEP] {
                if let Some(tensor) = set.get(name) {
                    values.insert(name, tensor.clone());
                }
            }
            memory.upload(&values)?;
        }
        Ok(result)
    }

    /// The host's state, for programs that run there. Stale if the state is on a device.
    pub fn host_mut(&mut self) -> &mut StateSet {
        &mut self.host
    }

    /// Bytes where it lives.
    pub fn bytes(&self) -> usize {
        self.memory.as_ref().map_or(self.host.bytes(), |m| m.bytes())
    }
}

/// What the host holds: neither masters nor the ring.
fn without_device_names(set: &StateSet) -> StateSet {
    let mut host = StateSet::new();
    for (name, tensor) in set.iter() {
        if !name.starts_with(MASTER) && name != RING && name != RING_STEP {
            host.insert(name, tensor.clone());
        }
    }
    host
}

fn of_device(host: &StateSet, programs: &[&Program]) -> StateSet {
    let mut values = host.clone();
    for program in programs {
        add_device_names(&mut values, program.states().map(|(_, t)| (t.name.as_str(), &t.desc)));
    }
    values
}

/// Adds what a device has beside what the host holds: masters as the weights are, the ring empty.
fn add_device_names<'a>(
    values: &mut StateSet,
    names: impl Iterator<Item = (&'a str, &'a kernels::TensorDesc)>,
) {
    for (name, desc) in names {
        if let Some(weight) = name.strip_prefix(MASTER) {
            if let Some(tensor) = values.get(weight).cloned() {
                values.insert(name, tensor);
            }
        } else if name == RING || name == RING_STEP {
            values.insert(name, crate::weights::zeros(desc));
        }
    }
}
