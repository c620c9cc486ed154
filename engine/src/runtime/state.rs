//! A model's state. It can always be read on the host; while the model is on a device, the device
//! holds the current values.
//!
//! On the host, a weight is stored as f32. On a device there is an f32 master weight, and a copy in
//! fp16 or f32 that kernels read, derived from the master. Checkpoints contain only the f32 values,
//! so they do not depend on the device.

use std::sync::Arc;

use device::{Device, Precision};
use graph::exec::device::SharedArena;
use graph::{CpuArena, DeviceState, Program, StateSet};
use kernels::isa::GemmSettings;

use crate::error::EngineError;
use crate::model::{MASTER, RING, RING_STEP};
use crate::weights::swap_averages;

/// Weights, momentum and counters of a model.
#[derive(Debug)]
pub struct ModelState {
    host: StateSet,
    memory: Option<Arc<DeviceState>>,
    /// Arena of programs on a device. All programs share it, since each run has a mutable reference
    /// to the state until it is done.
    arena: Option<Arc<SharedArena>>,
    /// Arena of programs on the CPU.
    cpu_arena: CpuArena,
    products: GemmSettings,
}

impl ModelState {
    /// State on the host. Programs run GEMMs and convolutions with the settings `products`.
    pub fn host(set: StateSet, products: GemmSettings) -> Self {
        let cpu_arena = CpuArena::default();
        Self { host: set, memory: None, arena: None, cpu_arena, products }
    }

    /// State on a device in this precision: the tensors that `programs` declare, with values from
    /// `set`.
    ///
    /// # Errors
    /// Device errors.
    pub fn on_device(
        set: StateSet,
        device: Arc<dyn Device>,
        precision: Precision,
        programs: &[&Program],
    ) -> Result<Self, EngineError> {
        let host = without_device_names(&set);
        let values = of_device(&host, programs);
        let memory = DeviceState::in_precision(precision, device, programs, &[RING], &values)?;
        let memory = Some(Arc::new(memory));
        let (cpu_arena, products) = (CpuArena::default(), GemmSettings::PLAIN);
        Ok(Self { host, memory, arena: None, cpu_arena, products })
    }

    /// The state's device memory; `None` on the host.
    pub fn memory(&self) -> Option<&Arc<DeviceState>> {
        self.memory.as_ref()
    }

    /// An arena on `device` of at least `bytes`; the existing one is reused if it is large enough.
    /// The results of a run stay in it until another program runs on this state.
    ///
    /// # Errors
    /// Device errors.
    pub fn arena(
        &mut self,
        device: &Arc<dyn Device>,
        bytes: usize,
    ) -> Result<Arc<SharedArena>, EngineError> {
        if let Some(arena) = self.arena.as_ref().filter(|arena| arena.bytes() >= bytes) {
            return Ok(arena.clone());
        }
        let arena = Arc::new(SharedArena::of_bytes(device.clone(), bytes)?);
        Ok(self.arena.insert(arena).clone())
    }

    /// Settings for GEMMs on the CPU.
    pub fn gemm_settings(&self) -> GemmSettings {
        self.products
    }

    /// Arena of programs on the CPU.
    pub fn cpu_arena(&self) -> &CpuArena {
        &self.cpu_arena
    }

    /// The current state. If it is on a device, waits for the device and copies the state to the
    /// host.
    ///
    /// # Errors
    /// Device errors.
    pub fn fetch(&mut self) -> Result<&StateSet, EngineError> {
        let set = self.download()?;
        self.take(&set);
        Ok(&self.host)
    }

    /// Downloads the device's state; empty if the state is on the host.
    fn download(&self) -> Result<StateSet, EngineError> {
        let mut set = StateSet::new();
        if let Some(memory) = &self.memory {
            memory.download(&mut set)?;
        }
        Ok(set)
    }

    /// Copies downloaded values into the host's state. Copies of weights that kernels read are
    /// skipped: each is a rounded master weight, or frozen and thus unchanged.
    fn take(&mut self, set: &StateSet) {
        for (name, tensor) in without_device_names(set).iter() {
            if !tensor.desc.role.follows_precision() {
                self.host.insert(name, tensor.clone());
            }
        }
        for (name, master) in set.iter() {
            if let Some(weight) = name.strip_prefix(MASTER) {
                self.host.insert(weight, master.clone());
            }
        }
    }

    /// Changes the state, on the host and on the device. The device's result ring is preserved.
    ///
    /// # Errors
    /// Errors from `change`; device errors.
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

    /// Runs `use_it` on this state. If `averages` is true, the parameters are replaced by their
    /// moving averages meanwhile.
    ///
    /// # Errors
    /// Errors from `use_it`; device errors.
    pub fn with_averages<T>(
        &mut self,
        averages: bool,
        use_it: impl FnOnce(&mut Self) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        let swap = |state: &mut Self| match averages {
            true => state.change(|set| {
                swap_averages(set);
                Ok(())
            }),
            false => Ok(()),
        };
        swap(self)?;
        let result = use_it(self);
        swap(self)?;
        result
    }

    /// The host's state, for programs on the CPU. Outdated if the state is on a device.
    pub fn host_mut(&mut self) -> &mut StateSet {
        &mut self.host
    }

    /// Size in bytes, on the host or device.
    pub fn bytes(&self) -> usize {
        self.memory.as_ref().map_or(self.host.bytes(), |m| m.bytes())
    }
}

/// The tensors that exist on the host: all except master weights and the result ring.
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

/// Adds the tensors that exist only on a device: master weights, equal to the weights, and an empty
/// result ring.
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
