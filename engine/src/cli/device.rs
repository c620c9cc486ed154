//! `--device`: where a command runs its programs.

use std::sync::Arc;

use crate::EngineError;
use crate::gpu;
use crate::progress::Progress;
use crate::runtime::Backend;
use clap::{Args, ValueEnum};
use device::cuda::Installed;

/// The GPU that a process uses: the first that `CUDA_VISIBLE_DEVICES` leaves visible.
pub(super) const ORDINAL: usize = 0;

/// The option `--device`.
#[derive(Debug, Args)]
pub struct DeviceArgs {
    /// Where to run: a CUDA GPU, the CPU, or the GPU if there is one that can be used.
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
    /// [`EngineError::Usage`] for a name that it does not know.
    pub fn of(name: &str) -> Result<Self, EngineError> {
        let device = Choice::from_str(name, false).map_err(|_| {
            EngineError::Usage(format!("device is `{name}`; it must be auto, cpu or cuda"))
        })?;
        Ok(Self { device })
    }

    /// Opens the device.
    ///
    /// # Errors
    /// As [`Self::open_with`].
    pub fn open(&self) -> Result<Backend, EngineError> {
        let opened = self.open_with(|| Ok(gpu::open(ORDINAL, notice)?))?;
        Ok(opened.map_or(Backend::Cpu, |cuda| Backend::Device(Arc::new(cuda))))
    }

    /// Opens the device that `cuda` means, with `open`; `None` if the CPU was requested, or is all
    /// that `auto` finds.
    ///
    /// # Errors
    /// [`EngineError::Device`] with one sentence if `cuda` was requested and no GPU opens, or if a
    /// GPU is present but fails to open.
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
    /// True if the CPU was asked for.
    pub(super) fn is_cpu(&self) -> bool {
        matches!(self.device, Choice::Cpu)
    }
}

/// Says what a GPU's start has to say; of several ranks the first.
pub(super) fn notice(sentence: &str) {
    if ranks::Launch::from_env().is_ok_and(|launch| launch.rank == 0) {
        Progress::loud().say(sentence);
    }
}

/// Applies a choice to an attempt to open the GPU.
fn choose<T>(choice: Choice, opened: Result<T, EngineError>) -> Result<Option<T>, EngineError> {
    match opened {
        Ok(device) => {
            tracing::info!(?choice, "runs on the GPU: it opens");
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

    fn absent() -> Result<u8, EngineError> {
        Err(DeviceError::Absent("no GPU".into()).into())
    }

    #[test]
    fn auto_takes_the_gpu_if_it_opens_and_else_the_cpu() {
        assert_eq!(choose(Choice::Auto, Ok(7)).expect("it opened"), Some(7));
        assert_eq!(choose(Choice::Auto, absent()).expect("the CPU"), None);
    }

    #[test]
    fn cuda_says_why_there_is_none() {
        assert_eq!(choose(Choice::Cuda, Ok(7)).expect("it opened"), Some(7));
        let error = choose(Choice::Cuda, absent()).expect_err("there is none");
        assert_eq!(error.to_string(), "no GPU");
    }

    /// A GPU that is present but broken is no reason to train on the CPU for a week.
    #[test]
    fn a_broken_gpu_is_told_even_to_auto() {
        let broken = || DeviceError::Driver { call: "opening".into(), reason: "ECC".into() };
        for choice in [Choice::Auto, Choice::Cuda] {
            let error = choose::<u8>(choice, Err(broken().into())).expect_err("it is broken");
            assert_eq!(error.to_string(), "opening: ECC");
        }
    }
}
