//! The runner of the GPU kit on the emulated device: for the test of the runner.

use std::process::ExitCode;
use std::sync::Arc;

use emulated::{EmulatedDevice, Order};
use kernels::device::{Device, DeviceError};

fn main() -> ExitCode {
    tests::kit::main(tests::kit::Kit { open, emulated: true })
}

fn open(seed: Option<u64>) -> Result<Arc<dyn Device>, DeviceError> {
    Ok(Arc::new(EmulatedDevice::new(seed.map_or(Order::Given, Order::Random))))
}
