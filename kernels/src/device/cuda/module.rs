//! Kernels: PTX made into code by the driver, and found by name.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{self, CUfunction_attribute_enum as Attribute, CUjit_option_enum as Jit};
use cudarc::driver::{DriverError, result};

use super::context::{Context, OrFault, reason};
use super::ptx;
use crate::device::manifest::{Kernel, Source};
use crate::device::{DeviceError, ModuleLoad};

/// The kernels of the manifest, each made into code when it is first asked for.
#[derive(Debug)]
pub(super) struct Kernels {
    context: Arc<Context>,
    loaded: Mutex<HashMap<&'static str, Arc<Function>>>,
}

impl Kernels {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self { context: context.clone(), loaded: Mutex::default() }
    }

    /// A kernel by name.
    pub(super) fn get(&self, name: &str) -> Result<Arc<Function>, DeviceError> {
        let mut loaded = self.lock();
        if let Some(function) = loaded.get(name) {
            return Ok(function.clone());
        }
        let Some((source, _)) = ptx::manifest()?.kernel(name) else {
            return Err(fault(name, "there is no such kernel in ptx/"));
        };
        load(&self.context, source, &mut loaded)?;
        loaded.get(name).cloned().ok_or_else(|| fault(name, "its module does not hold it"))
    }

    /// Adds the kernels of a source that is not in `ptx/`.
    pub(super) fn add(&self, source: &'static Source, text: &str) -> Result<(), DeviceError> {
        for kernel in &source.kernels {
            // What is replaced would be unloaded under the graphs that hold it.
            if ptx::manifest()?.kernel(&kernel.name).is_some() {
                return Err(fault(&kernel.name, "ptx/ has a kernel of this name"));
            }
        }
        insert(&self.context, source, text, &mut self.lock())
    }

    /// JIT-compiles the remaining modules. All are tried, whatever becomes of one.
    pub(super) fn load_all(&self) -> Vec<ModuleLoad> {
        let manifest = match ptx::manifest() {
            Ok(manifest) => manifest,
            Err(e) => return vec![ModuleLoad { path: "ptx/".into(), result: Err(e) }],
        };
        let mut loaded = self.lock();
        let load = |source: &'static Source| ModuleLoad {
            path: source.path.clone(),
            result: match source.kernels.first() {
                Some(kernel) if !loaded.contains_key(kernel.name.as_str()) => {
                    load(&self.context, source, &mut loaded)
                }
                _ => Ok(()),
            },
        };
        manifest.sources.iter().map(load).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<&'static str, Arc<Function>>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds the kernels of one source.
fn load(
    context: &Arc<Context>,
    source: &'static Source,
    loaded: &mut HashMap<&'static str, Arc<Function>>,
) -> Result<(), DeviceError> {
    let Some(text) = ptx::text(&source.ptx) else {
        let reason = "its PTX is not in this program".into();
        return Err(DeviceError::Driver { call: format!("loading {}", source.path), reason });
    };
    insert(context, source, text, loaded)
}

/// Adds the kernels of one source, whose PTX is `text`.
fn insert(
    context: &Arc<Context>,
    source: &'static Source,
    text: &str,
    loaded: &mut HashMap<&'static str, Arc<Function>>,
) -> Result<(), DeviceError> {
    let module = Arc::new(Module::new(context, &source.path, text)?);
    for kernel in &source.kernels {
        loaded.insert(&kernel.name, Arc::new(module.function(kernel)?));
    }
    Ok(())
}

fn fault(kernel: &str, reason: &str) -> DeviceError {
    DeviceError::Kernel { kernel: kernel.into(), reason: reason.into() }
}

/// Code of one source.
#[derive(Debug)]
struct Module {
    raw: sys::CUmodule,
    context: Arc<Context>,
}

// SAFETY: a module is a handle that any thread that has the context current may use, at the same
// time as others.
unsafe impl Send for Module {}
// SAFETY: as for `Send`.
unsafe impl Sync for Module {}

impl Module {
    fn new(context: &Arc<Context>, path: &str, ptx: &str) -> Result<Self, DeviceError> {
        context.bind()?;
        let failed = |reason: String| DeviceError::Driver {
            call: format!("compiling the PTX of {path} for this GPU"),
            reason,
        };
        let image = CString::new(ptx).map_err(|e| failed(e.to_string()))?;
        let mut raw = ptr::null_mut();
        let mut log = vec![0u8; 4096];
        let mut options = [Jit::CU_JIT_ERROR_LOG_BUFFER, Jit::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        // A number is passed in the place of the pointer, as the driver wants it.
        let mut values: [*mut c_void; 2] =
            [log.as_mut_ptr().cast(), ptr::without_provenance_mut(log.len() - 1)];
        // SAFETY: the image is a zero-ended text; the options are two, with as many values, of
        // which the buffer has the length that the other states. All outlive the call.
        let made = unsafe {
            let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
            sys::cuModuleLoadDataEx(&mut raw, image.as_ptr().cast(), 2, options, values)
        };
        made.result().map_err(|e| {
            let text: Vec<u8> = log.iter().copied().take_while(|byte| *byte != 0).collect();
            failed(format!("{} {}", reason(e), String::from_utf8_lossy(&text).trim()))
        })?;
        Ok(Self { raw, context: context.clone() })
    }

    fn function(self: &Arc<Self>, kernel: &'static Kernel) -> Result<Function, DeviceError> {
        let failed = |e: DriverError| fault(&kernel.name, &reason(e));
        let name = CString::new(kernel.name.as_str());
        let name = name.map_err(|e| fault(&kernel.name, &e.to_string()))?;
        // SAFETY: the module is alive, and held by what is made here.
        let raw = unsafe { result::module::get_function(self.raw, name) }.map_err(failed)?;
        let attribute = Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
        // The driver may put off making the code until something is asked of it: ask now, lest it
        // happen within a capture.
        // SAFETY: the function was found just now.
        let shared = unsafe { result::function::get_function_attribute(raw, attribute) };
        let static_shared_bytes = shared.map_err(failed)?.max(0) as u32;
        // All the dynamic shared memory that the GPU has, and at once: a capture is no place to
        // change an attribute, and what a launch takes is said by the launch.
        let attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let bytes = self.context.max_shared_bytes.saturating_sub(static_shared_bytes) as i32;
        // SAFETY: as above.
        unsafe { result::function::set_function_attribute(raw, attribute, bytes) }
            .or_fault(|| format!("giving `{}` {bytes} bytes of shared memory", kernel.name))?;
        Ok(Function { raw, kernel, _module: self.clone() })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: the handle is of `new`, and given up once; functions hold the module, and the
            // device drops its graphs before its kernels.
            let _ = unsafe { result::module::unload(self.raw) };
        }
    }
}

/// One kernel as code.
#[derive(Debug)]
pub(super) struct Function {
    raw: sys::CUfunction,
    /// What the manifest says of it.
    pub(super) kernel: &'static Kernel,
    /// Keeps the code alive.
    _module: Arc<Module>,
}

// SAFETY: a function is a handle that any thread that has the context current may use, at the same
// time as others; its module is held.
unsafe impl Send for Function {}
// SAFETY: as for `Send`.
unsafe impl Sync for Function {}

impl Function {
    /// The driver's handle; alive as long as `self`.
    pub(super) fn raw(&self) -> sys::CUfunction {
        self.raw
    }
}
