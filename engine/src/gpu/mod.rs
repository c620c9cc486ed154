//! Opens GPUs for commands. On a Hopper GPU the wgmma kernels are tested once before they are used,
//! in a separate process, since a faulting kernel makes the CUDA context of its process unusable.

mod check;

use device::architecture::Capability;
use device::cuda::CudaDevice;
use device::{Device, DeviceError, Gpu};

use crate::error::EngineError;

pub use check::checked_by;
pub(crate) use check::{NOT_OPENED, check};

/// Opens the GPU with this number. Its wgmma kernels are used only if their self-test succeeds.
/// `notice` prints a message if onegraph was not verified on GPUs of this kind, if kernels must be
/// compiled, or if the self-test fails.
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

/// Makes the operating system kill this process when its parent, which reads its measurements,
/// ends. Has no effect if the system does not support this.
pub(crate) fn end_with_parent() {
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
}

/// True if the error means that there is no usable GPU.
pub(crate) fn is_absent(fault: &EngineError) -> bool {
    matches!(fault, EngineError::Device(DeviceError::Absent(_)))
}
