//! The dynamic library has every function that the device looks for by name.
#![allow(unsafe_code)]

use std::env;
use std::ffi::{CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;

/// The bindings that the device calls have these names for the functions.
const FUNCTIONS: &str = "
    cuCtxGetStreamPriorityRange cuCtxSetCurrent cuCtxSynchronize cuDeviceGet cuDeviceGetAttribute
    cuDeviceGetCount cuDeviceGetName cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxRetain
    cuDeviceTotalMem_v2 cuDriverGetVersion cuEventCreate cuEventDestroy_v2 cuEventElapsedTime
    cuEventQuery cuEventRecord cuEventSynchronize cuFuncGetAttribute cuFuncSetAttribute
    cuGetErrorName cuGetErrorString cuGraphDestroy cuGraphExecDestroy cuGraphInstantiateWithFlags
    cuGraphLaunch cuGraphUpload cuInit cuLaunchKernel cuMemAlloc_v2 cuMemFreeHost cuMemFree_v2
    cuMemGetInfo_v2 cuMemHostAlloc cuMemHostGetDevicePointer_v2 cuMemcpyDtoDAsync_v2
    cuMemcpyDtoHAsync_v2 cuMemcpyHtoDAsync_v2 cuModuleGetFunction cuModuleLoadData
    cuModuleLoadDataEx cuModuleUnload cuStreamBeginCapture_v2 cuStreamCreate
    cuStreamCreateWithPriority cuStreamDestroy_v2 cuStreamEndCapture cuStreamIsCapturing
    cuStreamQuery cuStreamSynchronize cuStreamWaitEvent cuTensorMapEncodeTiled
    driverAddGpu driverAddress driverAlive driverCurrentDevice driverDeclare driverEnqueue
    driverSetWritten driverTakeCounted";

// SAFETY: functions of the C library, as POSIX declares them.
unsafe extern "C" {
    fn dlopen(path: *const c_char, mode: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

const LAZY: c_int = 1;

#[test]
fn the_library_has_all_functions() {
    // Cargo puts it next to the tests.
    let path = env::current_exe().expect("this test").with_file_name("libemulator.so");
    let name = CString::new(path.as_os_str().as_bytes()).expect("no zero");
    // SAFETY: a path; the library's initialisers ask nothing of the process.
    let library = unsafe { dlopen(name.as_ptr(), LAZY) };
    assert!(!library.is_null(), "{}", path.display());
    let missing: Vec<&str> = FUNCTIONS
        .split_whitespace()
        .filter(|function| {
            let name = CString::new(*function).expect("no zero");
            // SAFETY: an open library and a name.
            unsafe { dlsym(library, name.as_ptr()) }.is_null()
        })
        .collect();
    assert_eq!(missing, [""; 0]);
}
