//! Opens GPUs for commands. A Hopper GPU's wgmma kernels are checked once before plans take them,
//! in a process of their own: a kernel that faults takes its process with it.

mod check;

use device::architecture::Capability;
use device::cuda::CudaDevice;
use device::{Device, DeviceError, Gpu};

use crate::error::EngineError;

pub use check::checked_by;
pub(crate) use check::{NOT_OPENED, check};

/// Opens the GPU of this number, whose plans follow the check of its kernels. `notice` says what
/// takes long or fails.
///
/// # Errors
/// As for [`CudaDevice::open`].
pub fn open(ordinal: usize, notice: fn(&str)) -> Result<CudaDevice, DeviceError> {
    let cuda = kernels::compiled::open(ordinal, notice)?;
    let Gpu { name, capability, .. } = cuda.gpu();
    if !capability.is_supported() {
        notice(&format!(
            "warning: {name} has compute capability {capability}, on which onegraph is not \
             verified; supported is {}",
            Capability::SUPPORTED
        ));
    }
    let wgmma = check::passes(&cuda, ordinal, notice);
    Ok(cuda.with_wgmma(wgmma))
}

/// Ends this process with the one that started it: nobody reads what it measures. Where the kernel
/// does not do that, it measures to its end.
pub(crate) fn end_with_parent() {
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
}

/// True if an attempt to open a GPU failed for want of one.
pub(crate) fn is_absent(fault: &EngineError) -> bool {
    matches!(fault, EngineError::Device(DeviceError::Absent(_)))
}
