//! How the library finds the driver, and what it exports.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::process::Command;
use std::{env, fs, ptr};

use emulator_nccl::ncclCommAbort;

use super::common::*;

// SAFETY: as the C library declares them.
unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// `RTLD_NOW`, for this library only.
const NOW: c_int = 2;

/// Executes at once, and has all of the process's memory.
const DRIVER: &str = r#"
use std::ffi::c_void;
type Run = extern "C" fn(*mut c_void) -> i32;
type Release = extern "C" fn(*mut c_void);
#[unsafe(no_mangle)]
extern "C" fn driverEnqueue(
    _: *mut c_void, _: *const i8, run: Run, release: Release, data: *mut c_void,
) -> i32 {
    let code = run(data);
    release(data);
    code
}
#[unsafe(no_mangle)]
extern "C" fn driverAddress(device: u64, _: u64) -> *mut u8 { device as *mut u8 }
#[unsafe(no_mangle)]
extern "C" fn driverSetWritten(_: u64, _: u64) {}
#[unsafe(no_mangle)]
extern "C" fn driverDeclare(_: *const c_void, _: usize) {}
#[unsafe(no_mangle)]
extern "C" fn driverCurrentDevice() -> i32 { 0 }
#[unsafe(no_mangle)]
extern "C" fn cuMemAlloc_v2(_: *mut u64, _: usize) -> i32 { 0 }
#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(_: u64) -> i32 { 0 }
"#;

#[test]
fn the_driver_is_found_wherever_it_was_loaded_and_its_absence_is_said() {
    let test = the_driver_is_found_wherever_it_was_loaded_and_its_absence_is_said;
    let Some((id, place)) = given() else {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let folder = folder.join(format!("driver-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("driver.rs"), DRIVER).unwrap();
        let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let mut command = Command::new(rustc);
        let flags = ["--edition=2024", "--crate-type=cdylib", "-Anon_snake_case", "driver.rs"];
        command.current_dir(&folder).args(flags).args(["-o", "libcuda.so.1"]);
        // As NVIDIA's has one.
        command.arg("-Clink-arg=-Wl,-soname,libcuda.so.1");
        assert!(command.status().unwrap().success());
        let path = folder.to_str().unwrap();
        let file = format!("{path}/libcuda.so.1");
        for place in [("LD_LIBRARY_PATH", path), ("TEST_LOADED", &file)] {
            reports(&processes(test, 1, &[place, ("TEST_CODE", "0")]));
        }
        let nowhere = ("LD_LIBRARY_PATH", env!("CARGO_MANIFEST_DIR"));
        reports(&processes(test, 1, &[nowhere, ("TEST_CODE", "2")]));
        fs::remove_dir_all(&folder).unwrap();
        return;
    };
    if let Ok(loaded) = env::var("TEST_LOADED") {
        let name = format!("{loaded}\0");
        // SAFETY: a text that ends with a zero, and the library above.
        assert!(!unsafe { dlopen(name.as_ptr().cast(), NOW) }.is_null());
    }
    let code = init(id, place).map_or_else(
        |code| code,
        |raw| {
            let stream = Stream::new();
            assert_eq!(sum_all(raw, &Buffer::new(&[1f32]), &stream), 0);
            ncclCommAbort(raw)
        },
    );
    assert_eq!(code.to_string(), env::var("TEST_CODE").unwrap());
    assert!(code == 0 || last_error() == "the test driver is not there");
}

#[test]
fn the_dynamic_library_exports_nccls_names() {
    let folder = env::current_exe().unwrap().parent().unwrap().to_owned();
    let library = format!("{}\0", folder.join("libemulator_nccl.so").display());
    // SAFETY: a text that ends with a zero, and this package's library.
    let library = unsafe { dlopen(library.as_ptr().cast(), NOW) };
    assert_ne!(library, ptr::null_mut());
    let names: [&CStr; 8] = [
        c"ncclGetVersion",
        c"ncclGetUniqueId",
        c"ncclCommInitRank",
        c"ncclAllReduce",
        c"ncclCommGetAsyncError",
        c"ncclCommAbort",
        c"ncclGetErrorString",
        c"ncclGetLastError",
    ];
    for name in names {
        // SAFETY: an open library, and a text that ends with a zero.
        assert_ne!(unsafe { dlsym(library, name.as_ptr()) }, ptr::null_mut(), "{name:?}");
    }
}
