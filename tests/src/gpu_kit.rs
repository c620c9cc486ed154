//! The runner of the GPU kit: every check and measurement on a GPU, with a table at the end.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use device::cuda::CudaDevice;
use device::{Device, DeviceError};

fn main() -> ExitCode {
    tests::kit::main(tests::kit::Kit { open, emulated: false })
}

/// The first GPU, opened once: several devices of one GPU would disturb each other.
fn open(_seed: Option<u64>) -> Result<Arc<dyn Device>, DeviceError> {
    static OPENED: Mutex<Option<Arc<CudaDevice>>> = Mutex::new(None);
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let device = match opened.as_ref() {
        Some(device) => device.clone(),
        None => Arc::new(kernels::compiled::open(0)?),
    };
    *opened = Some(device.clone());
    Ok(device)
}
