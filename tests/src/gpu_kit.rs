//! The runner of the GPU kit: every check and measurement on a GPU, with a table at the end.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use device::cuda::{CudaDevice, NcclOptions, nccl_id, nccl_version};
use device::{Device, DeviceError, Ranks};
use gpu_kit::{InGroup, Kit};
use tests::step::CHECKS;

fn main() -> ExitCode {
    gpu_kit::main(Kit { open, join, nccl: nccl_version, checks: &CHECKS })
}

fn open(_seed: Option<u64>) -> Result<Arc<dyn Device>, DeviceError> {
    Ok(first()?)
}

/// The GPU in a group of one rank. NCCL's variables are those of the stage.
fn join() -> Result<InGroup, DeviceError> {
    let (device, (major, minor)) = (first()?, nccl_version()?);
    let options = NcclOptions { nvls: false, timeout: Duration::from_secs(30) };
    device.join(Ranks::ALONE, &nccl_id()?, &options)?;
    let left = device.clone();
    let leave = Box::new(move || left.abort());
    Ok(InGroup { device, through: format!("NCCL {major}.{minor}"), leave })
}

/// The first GPU, opened once: several devices of one GPU would disturb each other.
fn first() -> Result<Arc<CudaDevice>, DeviceError> {
    static OPENED: Mutex<Option<Arc<CudaDevice>>> = Mutex::new(None);
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let device = match opened.as_ref() {
        Some(device) => device.clone(),
        None => Arc::new(kernels::compiled::open(0, |sentence| println!("{sentence}"))?),
    };
    *opened = Some(device.clone());
    Ok(device)
}
