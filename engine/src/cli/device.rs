//! `--device`: the device that a command runs on.

use std::sync::Arc;

use crate::EngineError;
use crate::gpu;
use crate::progress::Progress;
use crate::runtime::Backend;
use clap::{Args, ValueEnum};
use device::cuda::Installed;

/// Index of the GPU that a process uses: the first visible one (`CUDA_VISIBLE_DEVICES`).
pub(super) const ORDINAL: usize = 0;

/// The option `--device`.
#[derive(Debug, Args)]
pub struct DeviceArgs {
    /// Device to run on: a CUDA GPU, the CPU, or (auto) the GPU if a usable one is found.
    #[arg(long, value_enum, default_value = "auto")]
    device: Choice,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Choice {
    Auto,
    Cpu,
    Cuda,
}

impl DeviceArgs {
    /// The option `--device NAME`.
    ///
    /// # Errors
    /// [`EngineError::Usage`] for an unknown name.
    pub fn of(name: &str) -> Result<Self, EngineError> {
        let device = Choice::from_str(name, false).map_err(|_| {
            EngineError::Usage(format!("device is `{name}`; it must be auto, cpu or cuda"))
        })?;
        Ok(Self { device })
    }

    /// Opens the device.
    ///
    /// # Errors
    /// As for [`Self::open_with`].
    pub fn open(&self) -> Result<Backend, EngineError> {
        let opened = self.open_with(|| Ok(gpu::open(ORDINAL, notice)?))?;
        Ok(opened.map_or(Backend::Cpu, |cuda| Backend::Device(Arc::new(cuda))))
    }

    /// Opens the GPU with `open`. `None` if the CPU was requested, or if `auto` finds no GPU.
    ///
    /// # Errors
    /// [`EngineError::Device`] with a one-line message if `cuda` was requested and no GPU can be
    /// opened, or if a GPU is present but fails to open.
    pub fn open_with<T>(
        &self,
        open: impl FnOnce() -> Result<T, EngineError>,
    ) -> Result<Option<T>, EngineError> {
        match self.device {
            Choice::Cpu => {
                tracing::info!("runs on the CPU: --device cpu");
                Ok(None)
            }
            choice => choose(choice, open()),
        }
    }
}

impl DeviceArgs {
    /// True if the CPU was requested.
    pub(super) fn is_cpu(&self) -> bool {
        matches!(self.device, Choice::Cpu)
    }
}

/// Prints a message about opening a GPU, on rank 0 only.
pub(super) fn notice(sentence: &str) {
    if ranks::Launch::from_env().is_ok_and(|launch| launch.rank == 0) {
        Progress::loud().say(sentence);
    }
}

/// Decides between GPU and CPU from the user's choice and the result of opening the GPU.
fn choose<T>(choice: Choice, opened: Result<T, EngineError>) -> Result<Option<T>, EngineError> {
    match opened {
        Ok(device) => {
            tracing::info!(?choice, "runs on the GPU, which was opened");
            Ok(Some(device))
        }
        Err(why) if choice == Choice::Auto && gpu::is_absent(&why) => {
            tracing::info!(?choice, "runs on the CPU: {why}");
            if Installed::find().is_ok_and(|installed| !installed.gpus.is_empty()) {
                notice(&format!("runs on the CPU: {why}"));
            }
            Ok(None)
        }
        Err(fault) => Err(fault),
    }
}

#[cfg(test)]
mod tests {
    use device::DeviceError;

    use super::*;

    /// With a GPU that is present but broken, `auto` must fail rather than silently train on the
    /// CPU.
    #[test]
    fn auto_device_is_cpu_only_without_gpu() {
        let absent = || Err(DeviceError::Absent("no GPU".into()));
        let broken = || Err(DeviceError::Driver { call: "opening".into(), reason: "ECC".into() });
        for (choice, opened, expected) in [
            (Choice::Auto, Ok(7), Ok(Some(7))),
            (Choice::Auto, absent(), Ok(None)),
            (Choice::Auto, broken(), Err("opening: ECC".to_string())),
            (Choice::Cuda, Ok(7), Ok(Some(7))),
            (Choice::Cuda, absent(), Err("no GPU".to_string())),
            (Choice::Cuda, broken(), Err("opening: ECC".to_string())),
        ] {
            let chosen = choose(choice, opened.map_err(EngineError::from));
            assert_eq!(chosen.map_err(|fault| fault.to_string()), expected, "{choice:?}");
        }
    }
}
