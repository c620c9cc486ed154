//! Sums over the ranks of a run: NVIDIA's library NCCL, loaded when a device joins a group.
//!
//! Not through cudarc: it looks for names of the library that the runtime package does not install
//! (`libnccl.so.2` is the only one there), and panics where a function is missing.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::sys;

use super::context::Context;
use super::memory::Allocation;
use super::stream::Stream;
use crate::{AllReduce, DType, DeviceError, Ranks};

/// Names of the library, the runtime package's first.
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];
/// NCCL 2.16, the first for CUDA 12, which the driver that is asked for brings.
const OLDEST: c_int = 21600;
/// The variable that NCCL reads for sums inside the switch (NVLink SHARP).
const NVLS: &str = "NCCL_NVLS_ENABLE";
/// A call into NCCL that lasts longer than this keeps [`Communicator::abort`] from ending it.
const PATIENCE: Duration = Duration::from_secs(1);

/// `ncclSum`.
const SUM: c_int = 0;
/// `ncclFloat16`.
const HALF: c_int = 6;
/// `ncclFloat32`.
const FLOAT: c_int = 7;
/// `ncclSuccess` and `ncclInProgress`, which are no faults.
const FINE: [c_int; 2] = [0, 7];

/// A communicator's handle; null once it is given up.
type Raw = *mut c_void;

/// What identifies a group: `ncclUniqueId`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct UniqueId([u8; 128]);

/// How a device joins its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NcclOptions {
    /// Lets NCCL sum inside the switch.
    pub nvls: bool,
    /// Time limit for all ranks to join.
    pub timeout: Duration,
}

/// What identifies a group of ranks: made by one of them, and given to [`super::CudaDevice::join`]
/// by all.
///
/// # Errors
/// [`DeviceError::Absent`] with one sentence if NCCL is missing or too old; NCCL's own errors.
pub fn nccl_id() -> Result<[u8; 128], DeviceError> {
    let library = library()?;
    let mut id = UniqueId([0; 128]);
    // SAFETY: the function writes one identifier, to memory that holds one.
    let result = unsafe { (library.get_unique_id)(&mut id) };
    library.check(result, ptr::null_mut(), || "opening a group of GPUs".into())?;
    Ok(id.0)
}

/// Major and minor version of the NCCL that is installed.
///
/// # Errors
/// [`DeviceError::Absent`] with one sentence if it is missing or too old.
pub fn nccl_version() -> Result<(u32, u32), DeviceError> {
    Ok(major_minor(library()?.version))
}

/// Environment variables that a process needs before it joins a group. NCCL reads them once, so
/// whoever starts the process sets them, or the process itself before it starts a thread.
pub fn nccl_variables(nvls: bool) -> Option<(&'static str, &'static str)> {
    (!nvls).then_some((NVLS, "0"))
}

/// The functions of NCCL.
#[derive(Debug)]
struct Library {
    version: c_int,
    get_unique_id: unsafe extern "C" fn(*mut UniqueId) -> c_int,
    init_rank: unsafe extern "C" fn(*mut Raw, c_int, UniqueId, c_int) -> c_int,
    all_reduce: unsafe extern "C" fn(
        *const c_void,
        *mut c_void,
        usize,
        c_int,
        c_int,
        Raw,
        sys::CUstream,
    ) -> c_int,
    async_error: unsafe extern "C" fn(Raw, *mut c_int) -> c_int,
    abort: unsafe extern "C" fn(Raw) -> c_int,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    last_error: unsafe extern "C" fn(Raw) -> *const c_char,
    /// Keeps the functions loaded.
    _library: libloading::Library,
}

/// The library that is installed, loaded once.
fn library() -> Result<&'static Library, DeviceError> {
    static LIBRARY: OnceLock<Result<Library, DeviceError>> = OnceLock::new();
    LIBRARY.get_or_init(|| Library::open(&NAMES)).as_ref().map_err(Clone::clone)
}

impl Library {
    fn open(names: &[&str]) -> Result<Self, DeviceError> {
        // SAFETY: loads NVIDIA's library, if there is one, whose initialisers ask nothing of the
        // process.
        let found = names.iter().find_map(|name| unsafe { libloading::Library::new(*name) }.ok());
        let Some(found) = found else {
            return Err(absent(&format!("is not found ({})", NAMES[0])));
        };
        let mut version = 0;
        // SAFETY: the function has had this signature in every version of NCCL.
        match unsafe { found.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"ncclGetVersion") } {
            // SAFETY: it writes one number.
            Ok(get_version) => unsafe { get_version(&mut version) },
            Err(_) => return Err(absent("does not say its version")),
        };
        check_version(version)?;
        // SAFETY: these are the signatures of NCCL 2, which newer versions only add to.
        unsafe { Self::functions(found, version) }
            .map_err(|_| absent(&format!("{} lacks functions", version_text(version))))
    }

    /// # Safety
    /// The library must be NCCL 2: the types here are those of its functions.
    unsafe fn functions(
        library: libloading::Library,
        version: c_int,
    ) -> Result<Self, libloading::Error> {
        // SAFETY: the caller says so.
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

    /// An error for a result that is one.
    fn check(
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
/// Null, or a text that ends with a zero.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller says so.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// One sentence of NCCL's name for an error and its detail, which may be empty.
fn fault(call: String, [name, detail]: [String; 2]) -> DeviceError {
    let detail = detail.lines().map(str::trim).find(|line| !line.is_empty());
    let detail = detail.map(|line| format!(" ({line})")).unwrap_or_default();
    let reason = format!("{name}{detail}; run it with NCCL_DEBUG=INFO for more");
    DeviceError::Driver { call, reason }
}

fn absent(what: &str) -> DeviceError {
    DeviceError::Absent(format!(
        "NCCL, which several GPUs need, {what}; install {} or newer (apt-get install libnccl2), or \
         name its folder in LD_LIBRARY_PATH",
        version_text(OLDEST)
    ))
}

/// NCCL counts 2.16.2 as 21602; before 2.9 it counted 2.8.4 as 2804.
fn major_minor(version: c_int) -> (u32, u32) {
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

/// What NCCL may do in the switch is decided before it starts.
fn check_variables(nvls: bool, is_set: impl Fn(&str) -> bool) -> Result<(), DeviceError> {
    match nccl_variables(nvls) {
        Some((name, value)) if !is_set(name) => Err(DeviceError::Driver {
            call: "joining a group of GPUs".into(),
            reason: format!("start each rank with {name}={value}, or allow NVLink SHARP (nvls)"),
        }),
        _ => Ok(()),
    }
}

/// This rank's end of a group.
#[derive(Debug)]
pub(super) struct Communicator {
    pub(super) ranks: Ranks,
    library: &'static Library,
    handle: Mutex<Handle>,
    context: Arc<Context>,
}

#[derive(Debug)]
struct Handle(Raw);

// SAFETY: a communicator belongs to no thread; the mutex around it keeps threads apart.
unsafe impl Send for Handle {}

impl Communicator {
    /// Joins the group, and makes a first sum over it.
    pub(super) fn join(
        context: &Arc<Context>,
        ranks: Ranks,
        id: &[u8; 128],
        options: &NcclOptions,
    ) -> Result<Self, DeviceError> {
        let library = library()?;
        check_variables(options.nvls, |name| std::env::var_os(name).is_some())?;
        let (context, id) = (context.clone(), UniqueId(*id));
        let (sender, receiver) = mpsc::channel();
        // NCCL waits for the other ranks without a limit. A thread that waits for ever ends with
        // the process; if they come too late, what it sends is dropped.
        let start = move || drop(sender.send(Self::start(library, context, ranks, id)));
        let call = || call(ranks);
        let spawned = thread::Builder::new().name("nccl join".into()).spawn(start);
        spawned.map_err(|e| DeviceError::Driver { call: call(), reason: e.to_string() })?;
        receiver.recv_timeout(options.timeout).unwrap_or_else(|_| {
            let seconds = options.timeout.as_secs();
            let reason = format!("not all ranks joined within {seconds} s");
            Err(DeviceError::Driver { call: call(), reason })
        })
    }

    fn start(
        library: &'static Library,
        context: Arc<Context>,
        ranks: Ranks,
        id: UniqueId,
    ) -> Result<Self, DeviceError> {
        context.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the GPU's context is current on this thread, and NCCL takes the GPU from there;
        // it writes one handle.
        let result =
            unsafe { (library.init_rank)(&mut raw, ranks.count as c_int, id, ranks.rank as c_int) };
        library.check(result, ptr::null_mut(), || call(ranks))?;
        let handle = Mutex::new(Handle(raw));
        let communicator = Self { ranks, library, handle, context: context.clone() };
        // The first sum makes the connections: better here than in the middle of a capture.
        let stream = Stream::new(&context)?;
        let [from, to] = [Allocation::new(&context, 4)?, Allocation::new(&context, 4)?];
        let sum = AllReduce { to: to.ptr, from: from.ptr, len: 1, dtype: DType::F32 };
        communicator.all_reduce(&stream, &sum)?;
        stream.download(to.ptr, &mut [0; 4])?;
        communicator.check()?;
        Ok(communicator)
    }

    /// Enqueues a sum. The caller has found both ranges inside of allocations.
    pub(super) fn all_reduce(&self, stream: &Stream, sum: &AllReduce) -> Result<(), DeviceError> {
        let call = || format!("summing {} elements over {} ranks", sum.len, self.ranks.count);
        let dtype = match sum.dtype {
            DType::F16 => HALF,
            DType::F32 => FLOAT,
            other => {
                let reason = format!("{other:?} is not added up");
                return Err(DeviceError::Driver { call: call(), reason });
            }
        };
        if sum.len == 0 {
            return Ok(());
        }
        let handle = self.lock();
        let raw = self.raw(&handle)?;
        self.context.bind()?;
        let (from, to) = (sum.from as *const c_void, sum.to as *mut c_void);
        // SAFETY: communicator and stream are alive, and of the context that is current. Both
        // ranges are inside of allocations, which are released only once the device's work is done;
        // the lock keeps other threads from giving the communicator up meanwhile.
        let result =
            unsafe { (self.library.all_reduce)(from, to, sum.len, dtype, SUM, raw, stream.raw()) };
        self.library.check(result, raw, call)
    }

    /// Reports a fault of an earlier sum, if it is already known.
    pub(super) fn check(&self) -> Result<(), DeviceError> {
        let handle = self.lock();
        let raw = self.raw(&handle)?;
        let mut fault = 0;
        // SAFETY: the communicator is alive as long as the lock is held; one number is written.
        let result = unsafe { (self.library.async_error)(raw, &mut fault) };
        let call = || format!("summing over {} ranks", self.ranks.count);
        self.library.check(result, raw, call)?;
        self.library.check(fault, raw, call)
    }

    /// Ends the sums that wait for other ranks, with undefined results, and leaves the group.
    pub(super) fn abort(&self) -> Result<(), DeviceError> {
        let since = Instant::now();
        let mut handle = loop {
            match self.handle.try_lock() {
                Ok(handle) => break handle,
                Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                Err(TryLockError::WouldBlock) if since.elapsed() < PATIENCE => {
                    thread::sleep(PATIENCE / 100);
                }
                Err(TryLockError::WouldBlock) => {
                    let reason = "another thread is inside of NCCL".into();
                    return Err(DeviceError::Driver { call: "leaving the group".into(), reason });
                }
            }
        };
        self.give_up(&mut handle)
    }

    fn give_up(&self, handle: &mut Handle) -> Result<(), DeviceError> {
        let raw = std::mem::replace(&mut handle.0, ptr::null_mut());
        if raw.is_null() {
            return Ok(());
        }
        self.context.bind()?;
        // SAFETY: the handle is of `start`, given up once, and no other thread is using it.
        let result = unsafe { (self.library.abort)(raw) };
        self.library.check(result, ptr::null_mut(), || "leaving the group".into())
    }

    fn raw(&self, handle: &Handle) -> Result<Raw, DeviceError> {
        if handle.0.is_null() {
            let call = format!("summing over {} ranks", self.ranks.count);
            return Err(DeviceError::Driver { call, reason: "the group was left".into() });
        }
        Ok(handle.0)
    }

    fn lock(&self) -> MutexGuard<'_, Handle> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        // Not by ncclCommDestroy, which may wait for the other ranks. The device has waited for its
        // own work, and a fault has nobody left to go to.
        let _ = self.give_up(&mut self.lock());
    }
}

fn call(Ranks { rank, count }: Ranks) -> String {
    format!("joining a group of GPUs as rank {rank} of {count}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentence(error: &DeviceError) -> String {
        let sentence = error.to_string();
        assert!(!sentence.contains('\n'), "{sentence}");
        sentence
    }

    /// The error that users see without NCCL; never a panic.
    #[test]
    fn a_machine_without_nccl_is_told_so_in_one_sentence() {
        let said = sentence(&Library::open(&["libnccl-that-nobody-has.so"]).expect_err("none"));
        let wanted = "NCCL, which several GPUs need, is not found (libnccl.so.2); install 2.16 or \
                      newer (apt-get install libnccl2), or name its folder in LD_LIBRARY_PATH";
        assert_eq!(said, wanted);
        match nccl_id() {
            Ok(id) => assert_ne!(id, [0; 128], "there is NCCL here, and it makes identifiers"),
            Err(error) => println!("{}", sentence(&error)),
        }
    }

    #[test]
    fn a_library_that_is_not_nccl_is_refused() {
        let said = sentence(&Library::open(&["libc.so.6"]).expect_err("another library"));
        assert!(said.contains("does not say its version; install 2.16"), "{said}");
    }

    #[test]
    fn versions_older_than_2_16_are_refused() {
        assert_eq!(check_version(21602), Ok(()));
        assert_eq!(check_version(22907), Ok(()));
        assert_eq!([21602, 23004].map(major_minor), [(2, 16), (2, 30)]);
        for (version, name) in [(2804, "2.8"), (21003, "2.10"), (21599, "2.15"), (0, "0.0")] {
            let said = sentence(&check_version(version).expect_err("too old"));
            assert!(said.contains(&format!("is version {name}; install 2.16")), "{said}");
        }
    }

    #[test]
    fn faults_are_one_sentence() {
        let of = |detail: &str| {
            sentence(&fault(call(Ranks { rank: 1, count: 4 }), ["bad".into(), detail.into()]))
        };
        let wanted = "joining a group of GPUs as rank 1 of 4: bad; run it with NCCL_DEBUG=INFO for \
                      more";
        assert_eq!(of(""), wanted);
        assert!(of("\n  no interface\nmore\n").contains(": bad (no interface); run it"));
    }

    #[test]
    fn sums_in_the_switch_are_off_unless_asked_for() {
        let none = |_: &str| false;
        let said = sentence(&check_variables(false, none).expect_err("undecided"));
        assert!(said.contains("NCCL_NVLS_ENABLE=0, or allow"), "{said}");
        assert_eq!(check_variables(true, none), Ok(()));
        assert_eq!(check_variables(false, |name| name == NVLS), Ok(()));
        assert_eq!(nccl_variables(true), None);
    }
}
