//! NVIDIA's management library: this library under its name, with numbers of its own.

use std::ffi::{CStr, c_char, c_int, c_uint};

use super::{Out, api};
use crate::cuda::errors::INVALID_VALUE;

/// The first device by its identifier, that of `cuDeviceGetUuid`.
const FIRST: &[u8] = b"GPU-01010101-0101-0101-0101-010101010101";

api! {
    /// Starts the library.
    fn nvmlInit_v2() {
        Ok(())
    }

    /// A device by its identifier; the first alone is known.
    fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: Out<usize>) {
        // SAFETY: the caller gives a text that ends with a zero.
        let is_first = unsafe { CStr::from_ptr(uuid) }.to_bytes() == FIRST;
        if is_first { device.put(1) } else { Err(INVALID_VALUE.into()) }
    }

    /// Percent of the time with a kernel, and with a copy.
    fn nvmlDeviceGetUtilizationRates(_device: usize, rates: Out<[c_uint; 2]>) {
        rates.put([61, 17])
    }

    /// Bytes in all, free, and used.
    fn nvmlDeviceGetMemoryInfo(_device: usize, memory: Out<[u64; 3]>) {
        memory.put([100 << 20, 58 << 20, 42 << 20])
    }

    /// Milliwatts.
    fn nvmlDeviceGetPowerUsage(_device: usize, milliwatts: Out<c_uint>) {
        milliwatts.put(250_500)
    }

    /// MHz of the multiprocessors, 1; the memory's are not known.
    fn nvmlDeviceGetClockInfo(_device: usize, kind: c_int, mhz: Out<c_uint>) {
        if kind == 1 { mhz.put(1410) } else { Err(INVALID_VALUE.into()) }
    }
}
