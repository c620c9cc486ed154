//! `--device`: where a command runs its programs.

use clap::{Args, ValueEnum};

use crate::EngineError;
use crate::runtime::Backend;

#[derive(Debug, Args)]
pub(super) struct DeviceArgs {
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
    /// Opens the device.
    pub(super) fn open(&self) -> Result<Backend, EngineError> {
        match self.device {
            Choice::Cpu | Choice::Auto => Ok(Backend::Cpu),
            Choice::Cuda => Err(EngineError::Usage("no CUDA device".into())),
        }
    }
}
