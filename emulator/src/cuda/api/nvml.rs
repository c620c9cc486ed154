//! NVIDIA's management library (NVML): this library also exports its functions, with made-up
//! values.

use std::ffi::{CStr, c_char, c_int, c_uint};

use super::{Out, api};
use crate::cuda::errors::INVALID_VALUE;

/// UUID of the first device, as in `cuDeviceGetUuid`.
const FIRST: &[u8] = b"GPU-01010101-0101-0101-0101-010101010101";

api! {
    /// Initialises the library.
    fn nvmlInit_v2() {
        Ok(())
    }

    /// A device by its UUID; only the first device is supported.
    fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: Out<usize>) {
        // SAFETY: the caller passes a NUL-terminated text.
        let is_first = unsafe { CStr::from_ptr(uuid) }.to_bytes() == FIRST;
        if is_first { device.put(1) } else { Err(INVALID_VALUE.into()) }
    }

    /// Utilization in percent: kernels, and memory copies.
    fn nvmlDeviceGetUtilizationRates(_device: usize, rates: Out<[c_uint; 2]>) {
        rates.put([61, 17])
    }

    /// Total, free and used bytes.
    fn nvmlDeviceGetMemoryInfo(_device: usize, memory: Out<[u64; 3]>) {
        memory.put([100 << 20, 58 << 20, 42 << 20])
    }

    /// Milliwatts.
    fn nvmlDeviceGetPowerUsage(_device: usize, milliwatts: Out<c_uint>) {
        milliwatts.put(250_500)
    }

    /// SM clock (1) in MHz; memory clocks are not supported.
    fn nvmlDeviceGetClockInfo(_device: usize, kind: c_int, mhz: Out<c_uint>) {
        if kind == 1 { mhz.put(1410) } else { Err(INVALID_VALUE.into()) }
    }
}
