//! The backend that runs programs and holds a model's state: the CPU or a device.

mod executor;
mod machine;
mod slot;
mod state;

use std::sync::Arc;

use crate::config::Config;
use device::{Device, DevicePtr, Target};
use graph::exec::device::Prepared;
use kernels::CpuPrecision;
use kernels::isa::{GemmSettings, has_bf16};

use crate::error::EngineError;
use crate::progress::counted;

pub(crate) use executor::output_bytes;
pub use executor::{Executor, Inputs};
pub use machine::Machine;
pub(crate) use machine::gib;
pub use slot::{Slot, SlotMemory};
pub(crate) use slot::{copy_inputs, same_layout};
pub use state::ModelState;

/// Settings for GEMMs on this CPU, from a config.
///
/// # Errors
/// [`EngineError::Usage`] if the config requires an instruction set that the processor lacks.
pub fn gemm_settings(config: &Config) -> Result<GemmSettings, EngineError> {
    let bf16 = config.train.cpu_precision == CpuPrecision::Bf16;
    if bf16 && !has_bf16() {
        return Err(EngineError::Usage(
            "train.cpu_precision is bf16, but this processor does not support bf16 (AVX512_BF16): \
             set it to fp32"
                .into(),
        ));
    }
    Ok(GemmSettings { bf16, winograd: config.train.winograd })
}

/// The CPU or a device, on which programs run.
#[derive(Debug, Clone)]
pub enum Backend {
    /// The CPU, in f32, or in f32 with bf16 GEMMs (`train.cpu_precision`).
    Cpu,
    /// A CUDA device.
    Device(Arc<dyn Device>),
}

impl Backend {
    /// The target that a config's programs are planned for.
    pub fn target(&self, config: &Config) -> Target {
        match self {
            Backend::Cpu => Target::Cpu,
            Backend::Device(device) => {
                Target::Gpu(device.gpu().in_precision(config.train.precision))
            }
        }
    }

    /// `cpu`, or the device's name.
    pub fn name(&self) -> String {
        match self {
            Backend::Cpu => "cpu".into(),
            Backend::Device(device) => device.name(),
        }
    }

    /// The name for messages, with the number of threads on a CPU.
    pub fn describe(&self) -> String {
        match self {
            Backend::Cpu => {
                let threads = rayon::current_num_threads();
                format!("cpu ({})", counted(threads, "thread"))
            }
            Backend::Device(device) => device.name(),
        }
    }
}

/// Consecutive placeholder addresses for a program's state, to plan it without a device.
pub fn imagined_addresses(prepared: &Prepared) -> impl Fn(&str) -> Option<DevicePtr> + use<> {
    let mut next: DevicePtr = 1 << 40;
    let mut places = std::collections::BTreeMap::new();
    for (_, tensor) in prepared.program.states() {
        places.insert(tensor.name.clone(), next);
        next += prepared.target.bytes(&tensor.desc).next_multiple_of(256) as DevicePtr;
    }
    move |name| places.get(name).copied()
}
