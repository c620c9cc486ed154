//! Loads the driver, opens the GPU's context and makes it current.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::sys::{self, CUdevice_attribute_enum as Attribute};
use cudarc::driver::{DriverError, result};

use crate::architecture::Capability;
use crate::{DeviceError, DeviceMemory, DevicePtr, Gpu, Precision, Touch};

/// CUDA 12.2, the version of the kernels' PTX; driver 535 introduced it.
const OLDEST_CUDA: i32 = 12020;
/// A100: the first GPU with asynchronous copies and m16n8k16 tensor-core MMAs.
const OLDEST_CAPABILITY: Capability = Capability { major: 8, minor: 0 };

/// The primary context of one GPU. Every handle of the device keeps it alive.
#[derive(Debug)]
pub(super) struct Context {
    device: sys::CUdevice,
    raw: sys::CUcontext,
    /// The GPU's name and the driver's CUDA version, for reports.
    pub(super) name: String,
    /// The GPU's description for planning.
    pub(super) gpu: Gpu,
    is_given_up: AtomicBool,
    /// `driverDeclare`, which only the emulated driver exports.
    declare: Option<Declare>,
}

/// Declares the accesses of this thread's next launch or all-reduce: an array of [`Declared`], and
/// its length.
type Declare = unsafe extern "C" fn(*const Declared, usize);

/// Bytes that a launch or all-reduce may access.
#[repr(C)]
struct Declared {
    first: DevicePtr,
    bytes: u64,
    /// 1 if the bytes may be written, else 0.
    writes: u64,
}

// SAFETY: a context is a handle; the driver lets several threads make it current and use it at
// once. The other fields are plain values.
unsafe impl Send for Context {}
// SAFETY: as for `Send`.
unsafe impl Sync for Context {}

impl Context {
    /// Opens the GPU with this number.
    ///
    /// # Errors
    /// [`DeviceError::Absent`] if the driver or the GPU is missing or too old.
    pub(super) fn open(ordinal: usize) -> Result<Arc<Self>, DeviceError> {
        let version = init_driver()?;
        let count = result::device::get_count().map_err(no_driver)?;
        check_ordinal(ordinal, count)?;
        let device = result::device::get(ordinal as i32).map_err(no_driver)?;
        let name = result::device::get_name(device).map_err(no_driver)?;
        let capability = capability(device)?;
        check_capability(ordinal, &name, capability)?;
        let size = |attribute| size(device, attribute);
        let gpu = Gpu {
            name: name.clone(),
            capability,
            multiprocessors: size(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            shared_bytes: size(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            l2_bytes: size(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?,
            precision: Precision::Fp16,
            wgmma: true,
            kernel: None,
        };
        // SAFETY: `device` is from the driver; the context is released once, in `drop`.
        let raw = unsafe { result::primary_ctx::retain(device) }
            .or_fault(|| format!("opening GPU {ordinal} ({name})"))?;
        let name = format!("{name}, driver for CUDA {}", version_text(version));
        // SAFETY: the driver is loaded; only the emulated driver exports this symbol, with the type
        // `Declare`.
        let declare = unsafe { sys::culib().get::<Declare>(b"driverDeclare") };
        let declare = declare.ok().map(|symbol| *symbol);
        let is_given_up = AtomicBool::new(false);
        Ok(Arc::new(Self { device, raw, name, gpu, is_given_up, declare }))
    }

    /// The GPU's identifier, if the driver gives it.
    pub(super) fn uuid(&self) -> Option<[u8; 16]> {
        let uuid = result::device::get_uuid(self.device).ok()?;
        Some(uuid.bytes.map(|byte| byte as u8))
    }

    /// Makes the context current on this thread, which must precede every use of a handle.
    ///
    /// # Errors
    /// Driver errors, and any call after [`Self::give_up`]; callers then skip releases.
    pub(super) fn bind(&self) -> Result<(), DeviceError> {
        if self.is_given_up.load(Ordering::SeqCst) {
            let reason = "it does not respond and is no longer used".into();
            return Err(DeviceError::Driver { call: "choosing the GPU".into(), reason });
        }
        // SAFETY: the context is alive until `self` is dropped.
        unsafe { result::ctx::set_current(self.raw) }.or_fault(|| "choosing the GPU".into())
    }

    /// Declares the bytes that this thread's next launch or all-reduce may access, which the
    /// emulated driver checks.
    pub(super) fn declare(&self, touches: impl Iterator<Item = Touch>) {
        let Some(declare) = self.declare else { return };
        let declared = touches.map(|Touch { ptr, bytes, access }| Declared {
            first: ptr,
            bytes: bytes as u64,
            writes: access.writes().into(),
        });
        let list: Vec<Declared> = declared.collect();
        // SAFETY: the list has the given number of entries, and is copied by the call.
        unsafe { declare(list.as_ptr(), list.len()) }
    }

    /// Makes every later call to the GPU fail.
    pub(super) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::SeqCst);
    }

    /// Waits for all work.
    pub(super) fn synchronize(&self) -> Result<(), DeviceError> {
        self.bind()?;
        result::ctx::synchronize().or_fault(|| "waiting for the GPU".into())
    }

    /// Free and total memory.
    pub(super) fn memory(&self) -> Result<DeviceMemory, DeviceError> {
        self.bind()?;
        let (free, total) =
            result::mem_get_info().or_fault(|| "querying the amount of free memory".into())?;
        Ok(DeviceMemory { free, total })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.is_given_up.load(Ordering::SeqCst) {
            return;
        }
        // SAFETY: the context was retained once, in `open`; every handle that needs it holds an
        // `Arc` of `self`, so none is left. An error is ignored, as no caller is left to handle it.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

/// The installed driver, and its GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    /// The CUDA version that the driver supports, such as `12.2`.
    pub cuda: String,
    /// GPUs by number, as `CUDA_VISIBLE_DEVICES` counts them.
    pub gpus: Vec<InstalledGpu>,
}

/// A GPU as the driver describes it. It may be unable to run the kernels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledGpu {
    /// Its name.
    pub name: String,
    /// Compute capability.
    pub capability: Capability,
    /// Total memory.
    pub memory_bytes: usize,
    /// Why the kernels cannot run on this GPU; `None` if they can.
    pub refused: Option<String>,
}

impl Installed {
    /// Queries the driver without opening a GPU.
    ///
    /// # Errors
    /// [`DeviceError::Absent`] with a one-line message if no driver can run the kernels.
    pub fn find() -> Result<Self, DeviceError> {
        let cuda = version_text(init_driver()?);
        let count = result::device::get_count().map_err(no_driver)?;
        let gpus = (0..count).map(describe).collect::<Result<_, _>>()?;
        Ok(Self { cuda, gpus })
    }
}

fn describe(ordinal: i32) -> Result<InstalledGpu, DeviceError> {
    let device = result::device::get(ordinal).map_err(no_driver)?;
    let name = result::device::get_name(device).map_err(no_driver)?;
    let capability = capability(device)?;
    // SAFETY: `device` is from the driver.
    let memory_bytes = unsafe { result::device::total_mem(device) }.map_err(no_driver)?;
    let refused = check_capability(ordinal.max(0) as usize, &name, capability);
    let refused = refused.err().map(|e| e.to_string());
    Ok(InstalledGpu { name, capability, memory_bytes, refused })
}

/// Loads and initializes the driver; returns its CUDA version.
fn init_driver() -> Result<i32, DeviceError> {
    // SAFETY: loads NVIDIA's driver library, if installed; its initialisers have no preconditions.
    // (Without the library, any other call would panic.)
    if !unsafe { sys::is_culib_present() } {
        return Err(absent("no NVIDIA driver is installed (libcuda.so.1 is not found)"));
    }
    let mut version = 0;
    // SAFETY: the function writes one number, and may be called before `cuInit`.
    unsafe { sys::cuDriverGetVersion(&mut version) }.result().map_err(no_driver)?;
    check_version(version)?;
    result::init().map_err(no_driver)?;
    Ok(version)
}

fn attribute(device: sys::CUdevice, attribute: Attribute) -> Result<i32, DeviceError> {
    // SAFETY: every device here is from the driver.
    unsafe { result::device::get_attribute(device, attribute) }.map_err(no_driver)
}

/// An attribute that is a count or a length.
fn size(device: sys::CUdevice, which: Attribute) -> Result<usize, DeviceError> {
    Ok(usize::try_from(attribute(device, which)?).unwrap_or(0))
}

fn capability(device: sys::CUdevice) -> Result<Capability, DeviceError> {
    let number = |which| Ok(u32::try_from(attribute(device, which)?).unwrap_or(0));
    let major = number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    Ok(Capability { major, minor })
}

/// Adds the attempted action to a driver error.
pub(super) trait OrFault<T> {
    /// The value, or the driver's error while doing `call`.
    fn or_fault(self, call: impl FnOnce() -> String) -> Result<T, DeviceError>;
}

impl<T> OrFault<T> for Result<T, DriverError> {
    fn or_fault(self, call: impl FnOnce() -> String) -> Result<T, DeviceError> {
        self.map_err(|e| DeviceError::Driver { call: call(), reason: reason(e) })
    }
}

/// The driver's message, and the error's name, which can be searched for.
pub(super) fn reason(error: DriverError) -> String {
    match error.error_string() {
        Ok(text) => format!("{} ({:?})", text.to_string_lossy(), error.0),
        Err(_) => format!("{:?}", error.0),
    }
}

fn absent(what: &str) -> DeviceError {
    DeviceError::Absent(format!("{what}; install driver 535 or newer, or use --device cpu"))
}

/// Before a context exists, every failure means a missing or broken driver.
fn no_driver(error: DriverError) -> DeviceError {
    DeviceError::Absent(format!(
        "the NVIDIA driver finds no usable GPU: {}; see what nvidia-smi and CUDA_VISIBLE_DEVICES \
         say, or use --device cpu{}",
        reason(error),
        match error.0 {
            sys::CUresult::CUDA_ERROR_STUB_LIBRARY =>
                ". LD_LIBRARY_PATH names the `stubs` folder of a CUDA toolkit: take it out",
            _ => "",
        }
    ))
}

fn version_text(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

fn check_version(version: i32) -> Result<(), DeviceError> {
    if version >= OLDEST_CUDA {
        return Ok(());
    }
    let (found, wanted) = (version_text(version), version_text(OLDEST_CUDA));
    Err(absent(&format!("the NVIDIA driver is for CUDA {found}, and {wanted} is needed")))
}

fn check_ordinal(ordinal: usize, count: i32) -> Result<(), DeviceError> {
    let count = usize::try_from(count).unwrap_or(0);
    if ordinal < count {
        return Ok(());
    }
    let there = match count {
        0 => "the NVIDIA driver finds no GPU".into(),
        1 => format!("there is no GPU {ordinal}, only GPU 0"),
        _ => format!("there is no GPU {ordinal}, only 0 to {}", count - 1),
    };
    Err(DeviceError::Absent(format!(
        "{there}; see what nvidia-smi and CUDA_VISIBLE_DEVICES say, or use --device cpu"
    )))
}

fn check_capability(ordinal: usize, name: &str, found: Capability) -> Result<(), DeviceError> {
    if found >= OLDEST_CAPABILITY {
        return Ok(());
    }
    Err(DeviceError::Absent(format!(
        "GPU {ordinal} ({name}) has compute capability {found}, and {OLDEST_CAPABILITY} (A100) is \
         the least; choose another GPU, or use --device cpu"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(result: Result<(), DeviceError>) -> String {
        let Err(DeviceError::Absent(sentence)) = result else { panic!("{result:?}") };
        assert!(sentence.ends_with("or use --device cpu"), "{sentence}");
        sentence
    }

    #[test]
    fn driver_older_than_535_is_rejected() {
        assert_eq!(check_version(12020), Ok(()));
        assert_eq!(check_version(13000), Ok(()));
        let said = message(check_version(12010));
        assert!(
            said.starts_with("the NVIDIA driver is for CUDA 12.1, and 12.2 is needed"),
            "{said}"
        );
    }

    #[test]
    fn missing_gpu_is_rejected() {
        assert_eq!(check_ordinal(1, 2), Ok(()));
        assert!(message(check_ordinal(0, 0)).starts_with("the NVIDIA driver finds no GPU; "));
        assert!(message(check_ordinal(1, 1)).starts_with("there is no GPU 1, only GPU 0; "));
        assert!(message(check_ordinal(8, 8)).starts_with("there is no GPU 8, only 0 to 7; "));
    }

    #[test]
    fn gpu_older_than_a100_is_rejected() {
        let check = |ordinal, name, major, minor| {
            check_capability(ordinal, name, Capability { major, minor })
        };
        assert_eq!(check(0, "A100", 8, 0), Ok(()));
        assert_eq!(check(0, "H200", 9, 0), Ok(()));
        let said = message(check(2, "V100", 7, 5));
        assert!(said.starts_with("GPU 2 (V100) has compute capability 7.5, and 8.0 "), "{said}");
    }
}
