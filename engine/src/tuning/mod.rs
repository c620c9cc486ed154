//! Measurements of a GPU that its plans follow: whether its kernels of warpgroups compute what they
//! should (`check.rs`), and by a command which kernel and splits of each product take the least
//! time (`table.rs`). Both measure in a process of their own (`trials.rs`, which `session.rs`
//! watches): a kernel that faults takes its process with it.

mod check;
mod session;
mod table;
mod trials;

use std::path::Path;

use configs::Config;
use device::architecture::Capability;
use device::cuda::CudaDevice;
use device::{Device, DeviceError, Gpu, Tuning};

use crate::error::EngineError;

pub use check::checked_by;
pub(crate) use check::{NOT_OPENED, check};
pub(crate) use session::{Session, Tuned};
pub(crate) use table::{Row, Table};
pub(crate) use trials::{Event, Shapes, Start, run_trials};

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
    let warpgroups = check::passes(&cuda, ordinal, notice);
    Ok(cuda.tuned(Tuning { warpgroups, ..Tuning::default() }))
}

/// The same for a run, whose plans also follow the table that its config names.
///
/// # Errors
/// As for [`open`]; [`EngineError::Usage`] for a table of another GPU or of other kernels.
pub fn open_for(
    config: &Config,
    ordinal: usize,
    notice: fn(&str),
) -> Result<CudaDevice, EngineError> {
    let cuda = open(ordinal, notice)?;
    let Some(path) = &config.train.tuning else { return Ok(cuda) };
    let (table, sha256) = Table::read(Path::new(path), &cuda.gpu().name)?;
    let warpgroups = cuda.gpu().tuning.warpgroups;
    Ok(cuda.tuned(Tuning { warpgroups, choices: table.choices(), table: Some(sha256) }))
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

/// SHA-256 of the PTX of all kernels: measurements of other kernels do not hold.
fn kernels_sha256() -> String {
    let sources = &kernels::compiled::kernels().manifest().sources;
    let all: String = sources.iter().map(|source| format!("{}\n", source.ptx_sha256)).collect();
    crate::checkpoint::hex_digest(all.as_bytes())
}
