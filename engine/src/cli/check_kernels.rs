//! `onegraph check-kernels GPU`: tests a GPU's kernels in a separate process before their first
//! use. Other commands start it when they open a GPU for the first time.

use clap::Args;

use crate::EngineError;
use crate::gpu::{NOT_OPENED, check, end_with_parent};

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// Number of the GPU.
    gpu: usize,
}

pub(super) fn run(args: &CheckArgs) -> Result<(), EngineError> {
    end_with_parent();
    let cuda = match kernels::compiled::open(args.gpu, |_| ()) {
        Ok(cuda) => cuda,
        Err(fault) => {
            super::print(&format!("{NOT_OPENED}\n"))?;
            return Err(fault.into());
        }
    };
    match check(&cuda) {
        Ok(count) => super::print(&format!("{count} wgmma kernels are correct\n")),
        Err(reason) => {
            super::print(&format!("{reason}\n"))?;
            Err(EngineError::Usage(reason))
        }
    }
}
