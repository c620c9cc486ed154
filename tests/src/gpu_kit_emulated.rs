//! The runner of the GPU kit on the emulated device: for testing the runner. Environment variables
//! plant faults: the name of a kernel that faults, of one that never ends, and a part of the path
//! of a module that does not load.

use std::process::ExitCode;
use std::sync::Arc;

use device::{Device, DeviceError};
use emulated::{EmulatedDevice, Order, Planted};
use tests::kit::InGroup;

fn main() -> ExitCode {
    tests::kit::main(tests::kit::Kit { open, join, nccl: None, emulated: true })
}

fn open(seed: Option<u64>) -> Result<Arc<dyn Device>, DeviceError> {
    let told = |name: &str| std::env::var(name).ok();
    let planted = Planted {
        fault_in: told("ONEGRAPH_PLANT_FAULT"),
        hang_in: told("ONEGRAPH_PLANT_HANG"),
        broken_module: told("ONEGRAPH_PLANT_BROKEN"),
    };
    let device = EmulatedDevice::new(seed.map_or(Order::Given, Order::Random));
    Ok(Arc::new(device.with_planted(planted)))
}

fn join() -> Result<InGroup, DeviceError> {
    let device = Arc::new(EmulatedDevice::group(Order::Given, 1).remove(0));
    Ok(InGroup { device, through: "the emulated device".into(), leave: None })
}
