//! The command `bench` with the emulated device as `--device cuda`: for tests.

use std::process::ExitCode;
use std::sync::Arc;

use emulated::{EmulatedDevice, Order};

fn main() -> ExitCode {
    bench::main_on(|| Ok(Arc::new(EmulatedDevice::new(Order::Given))))
}
