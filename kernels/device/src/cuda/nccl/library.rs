//! NCCL itself: a library of C functions, loaded at run time.
//!
//! Loaded without cudarc, which looks only for library names that the runtime package does not
//! install (it installs `libnccl.so.2`), and panics if a function is missing.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use cudarc::driver::sys;

use crate::DeviceError;

/// Names of the library, the runtime package's first.
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];
/// NCCL 2.16, the first for CUDA 12, the oldest supported version.
pub(super) const OLDEST: c_int = 21600;

/// `ncclSum`.
pub(super) const SUM: c_int = 0;
/// `ncclFloat16`.
pub(super) const HALF: c_int = 6;
/// `ncclFloat32`.
pub(super) const FLOAT: c_int = 7;
/// `ncclSuccess` and `ncclInProgress`, which are not errors.
const FINE: [c_int; 2] = [0, 7];

/// A communicator's handle; null once it is released.
pub(super) type Raw = *mut c_void;

/// The identifier of a group: `ncclUniqueId`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct UniqueId(pub(super) [u8; 128]);

/// The functions of NCCL.
#[derive(Debug)]
pub(super) struct Library {
    pub(super) version: c_int,
    pub(super) get_unique_id: unsafe extern "C" fn(*mut UniqueId) -> c_int,
    pub(super) init_rank: unsafe extern "C" fn(*mut Raw, c_int, UniqueId, c_int) -> c_int,
    pub(super) all_reduce: unsafe extern "C" fn(
        *const c_void,
        *mut c_void,
        usize,
        c_int,
        c_int,
        Raw,
        sys::CUstream,
    ) -> c_int,
    pub(super) async_error: unsafe extern "C" fn(Raw, *mut c_int) -> c_int,
    pub(super) abort: unsafe extern "C" fn(Raw) -> c_int,
    pub(super) error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    pub(super) last_error: unsafe extern "C" fn(Raw) -> *const c_char,
    /// Keeps the functions loaded.
    pub(super) _library: libloading::Library,
}

/// The installed library, loaded once.
pub(super) fn library() -> Result<&'static Library, DeviceError> {
    static LIBRARY: OnceLock<Result<Library, DeviceError>> = OnceLock::new();
    LIBRARY.get_or_init(|| Library::open(&NAMES)).as_ref().map_err(Clone::clone)
}

impl Library {
    fn open(names: &[&str]) -> Result<Self, DeviceError> {
        // SAFETY: loads NVIDIA's library, if installed; its initialisers have no preconditions.
        let found = names.iter().find_map(|name| unsafe { libloading::Library::new(*name) }.ok());
        let Some(found) = found else {
            return Err(absent(&format!("is not found ({})", NAMES[0])));
        };
        let mut version = 0;
        // SAFETY: the function has had this signature in every version of NCCL.
        match unsafe { found.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"ncclGetVersion") } {
            // SAFETY: it writes one number.
            Ok(get_version) => unsafe { get_version(&mut version) },
            Err(_) => return Err(absent("does not report its version")),
        };
        check_version(version)?;
        // SAFETY: the signatures are from NCCL 2, to which newer versions only add functions.
        unsafe { Self::functions(found, version) }
            .map_err(|_| absent(&format!("{} lacks required functions", version_text(version))))
    }

    /// # Safety
    /// The library must be NCCL 2, whose functions have the types in [`Library`].
    unsafe fn functions(
        library: libloading::Library,
        version: c_int,
    ) -> Result<Self, libloading::Error> {
        // SAFETY: the caller guarantees it.
        unsafe {
            Ok(Self {
                version,
                get_unique_id: *library.get(b"ncclGetUniqueId")?,
                init_rank: *library.get(b"ncclCommInitRank")?,
                all_reduce: *library.get(b"ncclAllReduce")?,
                async_error: *library.get(b"ncclCommGetAsyncError")?,
                abort: *library.get(b"ncclCommAbort")?,
                error_string: *library.get(b"ncclGetErrorString")?,
                last_error: *library.get(b"ncclGetLastError")?,
                _library: library,
            })
        }
    }

    /// Turns a result code into an error, unless it means success.
    pub(super) fn check(
        &self,
        result: c_int,
        raw: Raw,
        call: impl FnOnce() -> String,
    ) -> Result<(), DeviceError> {
        if FINE.contains(&result) {
            return Ok(());
        }
        // SAFETY: the functions take any result, and a communicator or null; they return null or
        // text that lives until the next call into the library.
        let texts = unsafe { [text((self.error_string)(result)), text((self.last_error)(raw))] };
        Err(fault(call(), texts))
    }
}

/// # Safety
/// `text` must be null or a zero-terminated string.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller guarantees it.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// A one-line message with NCCL's name for an error and its detail, which may be empty.
fn fault(call: String, [name, detail]: [String; 2]) -> DeviceError {
    let detail = detail.lines().map(str::trim).find(|line| !line.is_empty());
    let detail = detail.map(|line| format!(" ({line})")).unwrap_or_default();
    let reason = format!("{name}{detail}; set NCCL_DEBUG=INFO for details");
    DeviceError::Driver { call, reason }
}

fn absent(what: &str) -> DeviceError {
    DeviceError::Absent(format!(
        "NCCL, which several GPUs need, {what}; install {} or newer (apt-get install libnccl2), or \
         name its folder in LD_LIBRARY_PATH",
        version_text(OLDEST)
    ))
}

/// NCCL encodes 2.16.2 as 21602; before 2.9 it encoded 2.8.4 as 2804.
pub(super) fn major_minor(version: c_int) -> (u32, u32) {
    let version = version.unsigned_abs();
    let scale = if version < 10_000 { 10 } else { 100 };
    (version / (100 * scale), version / 100 % scale)
}

fn version_text(version: c_int) -> String {
    let (major, minor) = major_minor(version);
    format!("{major}.{minor}")
}

fn check_version(version: c_int) -> Result<(), DeviceError> {
    if version >= OLDEST {
        return Ok(());
    }
    Err(absent(&format!("is version {}", version_text(version))))
}

#[cfg(test)]
mod tests {
    use super::super::tests::message;
    use super::super::{call, nccl_id};
    use super::*;
    use crate::Ranks;

    /// The error that users see without NCCL; never a panic.
    #[test]
    fn missing_nccl_prints_one_line_error() {
        let said = message(&Library::open(&["libnccl-that-nobody-has.so"]).expect_err("none"));
        let wanted = "NCCL, which several GPUs need, is not found (libnccl.so.2); install 2.16 or \
                      newer (apt-get install libnccl2), or name its folder in LD_LIBRARY_PATH";
        assert_eq!(said, wanted);
        match nccl_id() {
            Ok(id) => assert_ne!(id, [0; 128], "there is NCCL here, and it makes identifiers"),
            Err(error) => println!("{}", message(&error)),
        }
    }

    #[test]
    fn library_other_than_nccl_is_rejected() {
        let said = message(&Library::open(&["libc.so.6"]).expect_err("another library"));
        assert!(said.contains("does not report its version; install 2.16"), "{said}");
    }

    #[test]
    fn nccl_older_than_2_16_is_rejected() {
        assert_eq!(check_version(21602), Ok(()));
        assert_eq!(check_version(22907), Ok(()));
        assert_eq!([21602, 23004].map(major_minor), [(2, 16), (2, 30)]);
        for (version, name) in [(2804, "2.8"), (21003, "2.10"), (21599, "2.15"), (0, "0.0")] {
            let said = message(&check_version(version).expect_err("too old"));
            assert!(said.contains(&format!("is version {name}; install 2.16")), "{said}");
        }
    }

    #[test]
    fn nccl_errors_are_one_line() {
        let of = |detail: &str| {
            message(&fault(call(Ranks { rank: 1, count: 4 }), ["bad".into(), detail.into()]))
        };
        let wanted = "joining a group of GPUs as rank 1 of 4: bad; set NCCL_DEBUG=INFO for details";
        assert_eq!(of(""), wanted);
        assert!(of("\n  no interface\nmore\n").contains(": bad (no interface); set"));
    }
}
