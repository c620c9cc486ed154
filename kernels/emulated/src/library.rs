//! The shared library of compiled kernels: the only interface to C++.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_void};
use std::sync::OnceLock;

use device::{Arg, DeviceError, DevicePtr, Launch, Touch};

use crate::counted::{Operation, Requests, Site};

type LaunchFn = unsafe extern "C" fn(
    *const c_char,
    *const u32,
    *const u32,
    usize,
    *mut *mut c_void,
    *const u64,
    usize,
    u64,
    u32,
    c_int,
    *mut RawSite,
    usize,
    *mut usize,
    *mut c_char,
    usize,
) -> c_int;

/// The runtime's `struct Site`.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawSite {
    file: *const c_char,
    line: c_int,
    operation: c_int,
    requests: u64,
    bytes: u64,
    units: u64,
    least: u64,
    worst: u64,
}

impl RawSite {
    const NONE: Self = Self {
        file: std::ptr::null(),
        line: 0,
        operation: 0,
        requests: 0,
        bytes: 0,
        units: 0,
        least: 0,
        worst: 0,
    };

    fn site(&self) -> Site {
        // SAFETY: the runtime gives `__FILE__` of a kernel's source, a string of the library, which
        // is never unloaded.
        let file = unsafe { CStr::from_ptr(self.file) }.to_string_lossy();
        let name = file.rsplit('/').next().unwrap_or_default();
        Site {
            place: format!("{name}:{}", self.line),
            operation: Operation::ALL[self.operation as usize],
            requests: Requests {
                count: self.requests,
                bytes: self.bytes,
                units: self.units,
                least: self.least,
                worst: self.worst,
            },
        }
    }
}

/// Lines of a kernel that can be counted.
const SITES: usize = 512;

/// Functions of the library; it is never unloaded.
struct Functions {
    names: unsafe extern "C" fn() -> *const c_char,
    parameters: unsafe extern "C" fn(*const c_char, *mut *const u32) -> c_int,
    place: unsafe extern "C" fn(*const c_char, *mut c_char, usize),
    source: unsafe extern "C" fn(*const c_char, *mut c_char, usize),
    alloc: unsafe extern "C" fn(usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void, usize),
    red_zone: unsafe extern "C" fn(*mut c_void, usize) -> c_long,
    copy: unsafe extern "C" fn(*mut c_void, *const c_void, usize, *mut c_void, usize),
    launch: LaunchFn,
}

fn functions() -> &'static Functions {
    static LOADED: OnceLock<Functions> = OnceLock::new();
    LOADED.get_or_init(|| match load() {
        Ok(functions) => functions,
        Err(e) => panic!("the emulated kernels do not load: {e:?}"),
    })
}

fn load() -> Result<Functions, libloading::Error> {
    // SAFETY: the library is the one that this crate's build script made from sources of this
    // repository; its initialisers only fill a table. Each symbol has, in runtime/launch.cpp, the
    // type that it is given here. The library is leaked, so that the functions stay valid.
    unsafe {
        let library = Box::leak(Box::new(libloading::Library::new(env!("EMULATED_LIBRARY"))?));
        Ok(Functions {
            names: *library.get(b"emulated_kernels")?,
            parameters: *library.get(b"emulated_parameters")?,
            place: *library.get(b"emulated_place")?,
            source: *library.get(b"emulated_source")?,
            alloc: *library.get(b"emulated_alloc")?,
            free: *library.get(b"emulated_free")?,
            red_zone: *library.get(b"emulated_red_zone")?,
            copy: *library.get(b"emulated_copy")?,
            launch: *library.get(b"emulated_launch")?,
        })
    }
}

/// Names of all compiled kernels, sorted.
pub fn kernel_names() -> Vec<String> {
    static NAMES: OnceLock<Vec<String>> = OnceLock::new();
    let names = NAMES.get_or_init(|| {
        // SAFETY: the function returns a zero-ended string that lives until its next call; it is
        // called once, here, and the string is copied.
        let text = unsafe { CStr::from_ptr((functions().names)()) };
        text.to_string_lossy().lines().map(str::to_string).collect()
    });
    names.clone()
}

/// Sizes of a kernel's parameters in bytes, if there is such a kernel.
pub(crate) fn parameter_sizes(kernel: &str) -> Option<Vec<usize>> {
    let name = CString::new(kernel).ok()?;
    let mut sizes = std::ptr::null();
    // SAFETY: `name` is zero-ended; on success `sizes` is set to a static array of as many elements
    // as the function returns.
    unsafe {
        let count = (functions().parameters)(name.as_ptr(), &mut sizes);
        let count = usize::try_from(count).ok()?;
        Some(std::slice::from_raw_parts(sizes, count).iter().map(|s| *s as usize).collect())
    }
}

/// File and line of a kernel's end, for reports without a line of their own.
pub(crate) fn place(kernel: &str) -> String {
    let Ok(name) = CString::new(kernel) else { return String::new() };
    let mut text = vec![0u8; 256];
    // SAFETY: `name` is zero-ended, and the answer is written zero-ended into `text`'s length.
    unsafe { (functions().place)(name.as_ptr(), text.as_mut_ptr().cast(), text.len()) }
    until_zero(&text)
}

/// The CUDA source of a kernel, from the checkout's root; empty if there is no such kernel.
pub(crate) fn source(kernel: &str) -> String {
    let Ok(name) = CString::new(kernel) else { return String::new() };
    let mut text = vec![0u8; 4096];
    // SAFETY: as in `place`.
    unsafe { (functions().source)(name.as_ptr(), text.as_mut_ptr().cast(), text.len()) }
    let path = until_zero(&text);
    let kernels = concat!(env!("CARGO_MANIFEST_DIR"), "/");
    let kernels = kernels.strip_suffix("emulated/").unwrap_or(kernels);
    path.strip_prefix(kernels).map_or(path.clone(), |rest| format!("kernels/{rest}"))
}

/// Poisoned memory between red zones; `None` if out of memory.
pub(crate) fn alloc(bytes: usize) -> Option<DevicePtr> {
    // SAFETY: the function allocates for itself and has no precondition.
    let memory = unsafe { (functions().alloc)(bytes) };
    (!memory.is_null()).then_some(memory as DevicePtr)
}

/// An allocation: its address and length.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    pub(crate) ptr: DevicePtr,
    pub(crate) bytes: usize,
}

impl Block {
    /// Releases it.
    pub(crate) fn free(self) {
        // SAFETY: `ptr` and `bytes` are those of one call of `alloc`; the table of allocations
        // gives each of them up once.
        unsafe { (functions().free)(self.ptr as *mut c_void, self.bytes) }
    }

    /// Where its red zones were overwritten: bytes past the end, or negative, before the start.
    pub(crate) fn red_zone(self) -> Option<i64> {
        // SAFETY: the allocation is alive, and the function reads it and its red zones only.
        let at = unsafe { (functions().red_zone)(self.ptr as *mut c_void, self.bytes) };
        (at != 0).then_some(at)
    }

    /// Copies host bytes into it, from `offset` on.
    pub(crate) fn write(self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.bytes, "a copy past the end of an allocation");
        let to = (self.ptr as usize + offset) as *mut c_void;
        let from = bytes.as_ptr().cast();
        // SAFETY: the target lies in the allocation (asserted), which is alive and which no Rust
        // reference points into; the source is a slice. Device work runs under the same lock.
        unsafe { (functions().copy)(to, from, bytes.len(), self.ptr as *mut c_void, self.bytes) }
    }

    /// Copies from `offset` on into host bytes.
    pub(crate) fn read(self, offset: usize, bytes: &mut [u8]) {
        assert!(offset + bytes.len() <= self.bytes, "a copy past the end of an allocation");
        let from = (self.ptr as usize + offset) as *const c_void;
        let to = bytes.as_mut_ptr().cast();
        // SAFETY: as for `write`, with the roles changed.
        unsafe { (functions().copy)(to, from, bytes.len(), self.ptr as *mut c_void, self.bytes) }
    }
}

/// Execution choices that CUDA leaves open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way {
    /// Order of blocks and threads; 0 means by index.
    pub(crate) seed: u64,
    /// Host threads that share the blocks.
    pub(crate) os_threads: u32,
    /// Truncate sums of products, as tensor cores do.
    pub(crate) cut: bool,
    /// Count what warps ask of memory.
    pub(crate) count: bool,
}

/// Runs a launch to completion, and gives its sites if they are counted. The caller has checked the
/// argument sizes, and that everything the launch declares is in live allocations.
pub(crate) fn launch(launch: &Launch, way: Way) -> Result<Vec<Site>, DeviceError> {
    let fault = |reason: String| DeviceError::Kernel { kernel: launch.kernel.to_string(), reason };
    let name = CString::new(launch.kernel).map_err(|e| fault(e.to_string()))?;
    let memory: Vec<Vec<u128>> = launch.args.iter().map(aligned).collect();
    let mut pointers: Vec<*mut c_void> =
        memory.iter().map(|m| m.as_ptr().cast_mut().cast()).collect();
    let spans: Vec<u64> = launch.touches().flat_map(|t: Touch| [t.ptr, t.bytes as u64]).collect();
    let mut text = vec![0u8; 1024];
    let mut sites = vec![RawSite::NONE; if way.count { SITES } else { 0 }];
    let to = if way.count { sites.as_mut_ptr() } else { std::ptr::null_mut() };
    let mut site_count = 0;
    // SAFETY: the kernel reads its parameters through `pointers`, each of which leads to at least
    // the bytes of its parameter (the sizes were compared with the compiled signature), aligned to
    // 16. `spans` holds pairs; `to` is null or leads to `sites`. The error text ends in zero within
    // its capacity. The kernel itself is C++ that reaches memory by addresses: that it keeps to its
    // buffers is what the red zones and sanitizer builds of this device are there to show.
    let failed = unsafe {
        (functions().launch)(
            name.as_ptr(),
            launch.grid.as_ptr(),
            launch.block.as_ptr(),
            launch.shared_bytes as usize,
            pointers.as_mut_ptr(),
            spans.as_ptr(),
            spans.len() / 2,
            way.seed,
            way.os_threads,
            way.cut.into(),
            to,
            sites.len(),
            &mut site_count,
            text.as_mut_ptr().cast(),
            text.len(),
        )
    };
    if failed != 0 {
        return Err(fault(until_zero(&text)));
    }
    assert!(site_count <= sites.len(), "`{}` has {site_count} lines to count", launch.kernel);
    Ok(sites[..site_count].iter().map(RawSite::site).collect())
}

fn until_zero(text: &[u8]) -> String {
    let end = text.iter().position(|b| *b == 0).unwrap_or(text.len());
    String::from_utf8_lossy(&text[..end]).into_owned()
}

/// An argument's memory, aligned to 16 bytes.
fn aligned(arg: &Arg) -> Vec<u128> {
    let bytes = arg.bytes();
    let mut words = vec![0u128; bytes.len().div_ceil(16).max(1)];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks(16)) {
        let mut whole = [0; 16];
        whole[..chunk.len()].copy_from_slice(chunk);
        *word = u128::from_ne_bytes(whole);
    }
    words
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use device::architecture::Architecture;
    use device::manifest::Manifest;

    use super::{kernel_names, parameter_sizes, source};

    /// What runs on GPUs is what is tested here: no kernel is missing on either side, and both
    /// compilers agree on its parameter layout.
    #[test]
    fn the_compiled_kernels_are_the_emulated_ones() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ptx");
        let manifest = Manifest::load(&folder.join(Manifest::FILE)).unwrap();
        // Hopper-only kernels run on no other device, including this one.
        let sources: Vec<_> = manifest
            .sources
            .into_iter()
            .filter(|source| source.architecture == Architecture::COMPUTE_80)
            .collect();
        let compiled: BTreeMap<&str, &[usize]> = sources
            .iter()
            .flat_map(|source| &source.kernels)
            .map(|kernel| (kernel.name.as_str(), kernel.parameter_bytes.as_slice()))
            .collect();
        for file in &sources {
            file.kernels.iter().for_each(|kernel| assert_eq!(source(&kernel.name), file.path));
        }
        let names = kernel_names();
        // Faulty kernels, planted for the tests of this device, run on no GPU.
        for name in names.iter().filter(|name| !name.starts_with("planted_")) {
            let sizes = parameter_sizes(name).unwrap();
            assert_eq!(compiled.get(name.as_str()), Some(&sizes.as_slice()), "{name}");
        }
        for name in compiled.keys() {
            assert!(names.iter().any(|n| n == name), "{name}: not exported");
        }
    }
}
