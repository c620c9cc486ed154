//! The command `bench` with the emulated device as `--device cuda`: for tests.

use std::process::ExitCode;
use std::sync::Arc;

use bench::GroupOfOne;
use configs::Config;
use device::{Device, DeviceError};
use emulated::{EmulatedDevice, Order};

fn main() -> ExitCode {
    let through = "emulated";
    bench::main_on(|| Ok(Arc::new(EmulatedDevice::new(Order::Given))), GroupOfOne { open, through })
}

fn open(_config: &Config) -> Result<Arc<dyn Device>, DeviceError> {
    Ok(Arc::new(EmulatedDevice::group(Order::Given, 1).remove(0)))
}
