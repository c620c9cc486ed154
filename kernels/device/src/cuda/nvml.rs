//! Utilization of a GPU as reported by NVML, NVIDIA's management library, loaded at run time.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use libloading::Library;

const NAME: &str = "libnvidia-ml.so.1";
/// `NVML_CLOCK_SM` and `NVML_CLOCK_MEM`.
const CLOCKS: [(&str, c_uint); 2] = [("gpu_sm_mhz", 1), ("gpu_memory_mhz", 2)];

type Handle = *mut c_void;

/// The library, if it is installed and can be initialised.
fn library() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    let open = || {
        // SAFETY: loads NVIDIA's library, if installed; its initialisers have no preconditions.
        let library = unsafe { Library::new(NAME) }.ok()?;
        // SAFETY: the function has this signature in every version.
        let init = unsafe { library.get::<unsafe extern "C" fn() -> c_int>(b"nvmlInit_v2") };
        // SAFETY: it has no parameters.
        (unsafe { init.ok()?() } == 0).then_some(library)
    };
    LIBRARY.get_or_init(open).as_ref()
}

/// The value that the NVML function `name` writes for a device.
///
/// # Safety
/// The function of this name must take a device and a pointer to a `T`.
unsafe fn value<T: Default>(library: &Library, name: &str, device: Handle) -> Option<T> {
    type Function<T> = unsafe extern "C" fn(Handle, *mut T) -> c_int;
    // SAFETY: the caller guarantees the signature.
    let function = unsafe { library.get::<Function<T>>(name.as_bytes()) }.ok()?;
    let mut value = T::default();
    // SAFETY: the pointer is to this value.
    (unsafe { function(device, &mut value) } == 0).then_some(value)
}

fn device(library: &Library, uuid: [u8; 16]) -> Option<Handle> {
    type Find = unsafe extern "C" fn(*const c_char, *mut Handle) -> c_int;
    let hex: Vec<String> = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [0..4, 4..6, 6..8, 8..10, 10..16].map(|part| hex[part].concat());
    let name = CString::new(format!("GPU-{}", parts.join("-"))).ok()?;
    let mut found = std::ptr::null_mut();
    // SAFETY: the function has this signature in every version.
    let find = unsafe { library.get::<Find>(b"nvmlDeviceGetHandleByUUID") }.ok()?;
    // SAFETY: the name is zero-terminated, and the pointer is to this handle.
    (unsafe { find(name.as_ptr(), &mut found) } == 0).then_some(found)
}

/// Utilization, memory, power and clocks of the GPU with this UUID, by name. Values that it does
/// not support are left out; without the library, the list is empty.
pub(super) fn usage(uuid: [u8; 16]) -> Vec<(&'static str, f64)> {
    let Some(library) = library() else { return vec![] };
    let Some(device) = device(library, uuid) else { return vec![] };
    // SAFETY: in every version these functions write the percentage of time with a kernel and with
    // a copy; total, free and used bytes; and milliwatts.
    let (load, memory, power) = unsafe {
        (
            value::<[c_uint; 2]>(library, "nvmlDeviceGetUtilizationRates", device),
            value::<[u64; 3]>(library, "nvmlDeviceGetMemoryInfo", device),
            value::<c_uint>(library, "nvmlDeviceGetPowerUsage", device),
        )
    };
    let clock = |(name, kind)| {
        type Clock = unsafe extern "C" fn(Handle, c_uint, *mut c_uint) -> c_int;
        let mut mhz = 0;
        // SAFETY: the function has this signature in every version.
        let clock = unsafe { library.get::<Clock>(b"nvmlDeviceGetClockInfo") }.ok()?;
        // SAFETY: the pointer is to this number.
        (unsafe { clock(device, kind, &mut mhz) } == 0).then_some((name, f64::from(mhz)))
    };
    let known = [
        load.map(|[kernel, _]| ("gpu_percent", f64::from(kernel))),
        memory.map(|[_, _, used]| ("gpu_memory_mib", (used >> 20) as f64)),
        power.map(|milliwatts| ("gpu_watts", 1e-3 * f64::from(milliwatts))),
    ];
    known.into_iter().flatten().chain(CLOCKS.into_iter().filter_map(clock)).collect()
}
