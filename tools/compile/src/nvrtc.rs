//! NVRTC, NVIDIA's compiler as a library with C functions.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr;

use libloading::Library;
use serde::{Deserialize, Serialize};

use crate::Fault;

type Program = *mut c_void;
type Size = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type Text = unsafe extern "C" fn(Program, *mut c_char) -> c_int;

/// The loaded compiler. Several threads may call its functions concurrently, each for separate
/// programs.
pub struct Nvrtc {
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
    log_size: Size,
    log: Text,
    ptx_size: Size,
    ptx: Text,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
    error: unsafe extern "C" fn(c_int) -> *const c_char,
    /// Keeps the libraries loaded that contain the functions and the compiler's builtins.
    _libraries: [Library; 2],
}

/// The compiled result of a source.
#[derive(Debug, Serialize, Deserialize)]
pub struct Compiled {
    /// The PTX.
    pub ptx: String,
    /// Warnings of the compiler; empty if there are none.
    pub log: String,
}

impl Nvrtc {
    /// Loads the library from a folder.
    ///
    /// # Errors
    /// A library is missing or lacks a function.
    pub fn open(folder: &Path) -> Result<Self, Fault> {
        Self::load(folder).map_err(|e| Fault(format!("{}: NVRTC: {e}", folder.display())))
    }

    fn load(folder: &Path) -> Result<Self, libloading::Error> {
        // SAFETY: both libraries are from NVIDIA's pinned wheel, and their initialisers have no
        // requirements. The builtins are loaded first, since NVRTC opens them by bare name, which
        // finds a library that is already loaded. Each symbol has its type from nvrtc.h of 12.2,
        // and the libraries stay loaded as long as the functions taken from them are used.
        unsafe {
            let builtins = Library::new(folder.join("libnvrtc-builtins.so.12.2"))?;
            let nvrtc = Library::new(folder.join("libnvrtc.so.12"))?;
            Ok(Self {
                create: *nvrtc.get(b"nvrtcCreateProgram")?,
                compile: *nvrtc.get(b"nvrtcCompileProgram")?,
                log_size: *nvrtc.get(b"nvrtcGetProgramLogSize")?,
                log: *nvrtc.get(b"nvrtcGetProgramLog")?,
                ptx_size: *nvrtc.get(b"nvrtcGetPTXSize")?,
                ptx: *nvrtc.get(b"nvrtcGetPTX")?,
                destroy: *nvrtc.get(b"nvrtcDestroyProgram")?,
                error: *nvrtc.get(b"nvrtcGetErrorString")?,
                _libraries: [nvrtc, builtins],
            })
        }
    }

    /// Compiles one source; `name` is its name in the compiler's reports.
    ///
    /// # Errors
    /// The compiler's report.
    pub fn compile(&self, name: &str, source: &str, options: &[String]) -> Result<Compiled, Fault> {
        let (source, file) = (c_string(source)?, c_string(name)?);
        let options = options.iter().map(|o| c_string(o)).collect::<Result<Vec<_>, _>>()?;
        let options: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
        let mut program = ptr::null_mut();
        // SAFETY: the strings are NUL-terminated and outlive the call; with a count of 0 headers,
        // their arrays may be null; on success `program` is set.
        let created = unsafe {
            let none = ptr::null();
            (self.create)(&mut program, source.as_ptr(), file.as_ptr(), 0, none, none)
        };
        self.succeeded(name, created)?;
        // SAFETY: `program` was just created, and `options` has this number of NUL-terminated
        // strings, which outlive the call.
        let status = unsafe { (self.compile)(program, options.len() as c_int, options.as_ptr()) };
        let log = self.text(program, self.log_size, self.log);
        let ptx =
            if status == 0 { self.text(program, self.ptx_size, self.ptx) } else { Ok("".into()) };
        // SAFETY: `program` is alive, and not used after this.
        unsafe { (self.destroy)(&mut program) };
        let log = log?.trim().to_string();
        self.succeeded(name, status).map_err(|fault| Fault(format!("{fault}\n{log}")))?;
        Ok(Compiled { ptx: ptx?, log })
    }

    fn text(&self, program: Program, size: Size, text: Text) -> Result<String, Fault> {
        let mut bytes = 0;
        // SAFETY: `program` is alive (the caller destroys it later).
        let status = unsafe { size(program, &mut bytes) };
        self.succeeded("size", status)?;
        let mut buffer = vec![0u8; bytes.max(1)];
        // SAFETY: `program` is alive, and the buffer has the size requested by the compiler.
        let status = unsafe { text(program, buffer.as_mut_ptr().cast()) };
        self.succeeded("text", status)?;
        let end = buffer.iter().position(|byte| *byte == 0).unwrap_or(buffer.len());
        Ok(String::from_utf8_lossy(&buffer[..end]).into_owned())
    }

    fn succeeded(&self, what: &str, status: c_int) -> Result<(), Fault> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the function returns a static, NUL-terminated string for every number.
        let reason = unsafe { CStr::from_ptr((self.error)(status)) };
        Err(Fault(format!("{what}: {}", reason.to_string_lossy())))
    }
}

fn c_string(text: &str) -> Result<CString, Fault> {
    CString::new(text).map_err(|e| Fault(format!("a source or option contains a NUL byte: {e}")))
}
