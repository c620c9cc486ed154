//! Hook functions of the emulated driver, looked up at run time.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute_copy;
use std::ptr;
use std::sync::OnceLock;

/// A callback that the driver calls with an operation's `data`.
pub type Call<T> = unsafe extern "C" fn(*mut c_void) -> T;

/// A byte range that an operation accesses.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Declared {
    /// First address.
    pub first: u64,
    /// Length.
    pub bytes: u64,
    /// 1 if the bytes are written.
    pub writes: u64,
}

/// Functions of the emulated driver for libraries that enqueue work on its streams.
#[derive(Debug, Clone, Copy)]
pub struct Driver {
    /// `driverEnqueue`: stream, name, callback for each execution, callback for the release, data.
    pub enqueue:
        unsafe extern "C" fn(*mut c_void, *const c_char, Call<i32>, Call<()>, *mut c_void) -> i32,
    /// `driverDeclare`: declares the ranges that this thread's next operation accesses.
    pub declare: unsafe extern "C" fn(*const Declared, usize),
    /// `driverAddress`: host address of a device range, or null.
    pub address: unsafe extern "C" fn(u64, u64) -> *mut u8,
    /// `driverSetWritten`: marks a device range as written.
    pub set_written: unsafe extern "C" fn(u64, u64),
    /// `driverCurrentDevice`: the device of this thread's context, or -1.
    pub current_device: unsafe extern "C" fn() -> i32,
    /// `cuMemAlloc_v2`.
    pub allocate: unsafe extern "C" fn(*mut u64, usize) -> c_int,
    /// `cuMemFree_v2`.
    pub free: unsafe extern "C" fn(u64) -> c_int,
}

static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();

/// Uses these functions instead of looking up the driver's. Returns false if a driver was already
/// set or looked up.
pub fn use_driver(driver: Driver) -> bool {
    DRIVER.set(Some(driver)).is_ok()
}

/// The driver of this process.
pub(crate) fn driver() -> Option<&'static Driver> {
    DRIVER.get_or_init(find).as_ref()
}

// SAFETY: the declarations match the C library's.
unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

const LAZY: c_int = 1;
/// `RTLD_NOLOAD`: finds only libraries that are already loaded.
const NO_LOAD: c_int = 4;

fn find() -> Option<Driver> {
    // A null handle means all symbols visible in the process (`RTLD_DEFAULT`).
    let open = |flags: c_int| {
        [c"libcuda.so.1", c"libcuda.so"].map(|name| {
            // SAFETY: the name is NUL-terminated; the driver's initialisers have no requirements.
            unsafe { dlopen(name.as_ptr(), flags) }
        })
    };
    functions(ptr::null_mut())
        .or_else(|| open(LAZY | NO_LOAD).into_iter().filter(|l| !l.is_null()).find_map(functions))
        .or_else(|| open(LAZY).into_iter().filter(|l| !l.is_null()).find_map(functions))
}

fn functions(library: *mut c_void) -> Option<Driver> {
    // SAFETY: the signatures match the emulated driver's. `driverEnqueue` is looked up first, and
    // only the emulated driver has it.
    unsafe {
        Some(Driver {
            enqueue: function(library, c"driverEnqueue")?,
            declare: function(library, c"driverDeclare")?,
            address: function(library, c"driverAddress")?,
            set_written: function(library, c"driverSetWritten")?,
            current_device: function(library, c"driverCurrentDevice")?,
            allocate: function(library, c"cuMemAlloc_v2")?,
            free: function(library, c"cuMemFree_v2")?,
        })
    }
}

/// # Safety
/// `F` must be the pointer type of the function named `name`.
unsafe fn function<F>(library: *mut c_void, name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: null or an open library, and a NUL-terminated name.
    let found = unsafe { dlsym(library, name.as_ptr()) };
    // SAFETY: guaranteed by the caller.
    (!found.is_null()).then(|| unsafe { transmute_copy(&found) })
}
