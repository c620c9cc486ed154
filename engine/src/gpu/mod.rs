//! Opens GPUs for commands. A Hopper GPU's wgmma kernels are tested once before plans use them, in
//! a separate process: a kernel that faults ends its process.

mod check;

use device::architecture::Capability;
use device::cuda::CudaDevice;
use device::{Device, DeviceError, Gpu};

use crate::error::EngineError;

pub use check::checked_by;
pub(crate) use check::{NOT_OPENED, check};

/// Opens the GPU of this number, whose plans depend on the self-test of its kernels. `notice`
/// prints a message if it takes long or fails.
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

/// Ends this process with the one that started it, which reads its measurements. If the kernel does
/// not support this, it measures to its end.
pub(crate) fn end_with_parent() {
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
}

/// True if no GPU was found to open.
pub(crate) fn is_absent(fault: &EngineError) -> bool {
    matches!(fault, EngineError::Device(DeviceError::Absent(_)))
}
