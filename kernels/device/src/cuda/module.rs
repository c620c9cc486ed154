//! Kernels: PTX compiled by the driver, found by name.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{self, CUfunction_attribute_enum as Attribute, CUjit_option_enum as Jit};
use cudarc::driver::{DriverError, result};

use super::context::{Context, OrFault, reason};
use crate::manifest::{Compiled, Kernel, Source};
use crate::{DeviceError, ModuleLoad};

/// Compiled kernels; each module is JIT-compiled when one of its kernels is first requested.
#[derive(Debug)]
pub(super) struct Kernels {
    context: Arc<Context>,
    sets: Vec<&'static Compiled>,
    loaded: Mutex<HashMap<&'static str, Arc<Function>>>,
}

impl Kernels {
    pub(super) fn new(context: &Arc<Context>, sets: &[&'static Compiled]) -> Self {
        Self { context: context.clone(), sets: sets.to_vec(), loaded: Mutex::default() }
    }

    /// A kernel by name, for the newest architecture that the GPU runs.
    pub(super) fn get(&self, name: &str) -> Result<Arc<Function>, DeviceError> {
        let mut loaded = self.lock();
        if let Some(function) = loaded.get(name) {
            return Ok(function.clone());
        }
        let capability = self.context.gpu.capability;
        let found = self.sets.iter().find_map(|set| {
            let (source, _) = set.manifest().kernel(name, capability)?;
            Some((set, source))
        });
        let Some((set, source)) = found else {
            let reason = format!("no compiled kernel of this name runs on sm_{capability}");
            return Err(fault(name, &reason));
        };
        self.load(set, source, &mut loaded)?;
        loaded.get(name).cloned().ok_or_else(|| fault(name, "its module does not hold it"))
    }

    /// JIT-compiles the remaining modules of the first set, the one that training runs. Tries all
    /// of them, even if one fails.
    pub(super) fn load_all(&self) -> Vec<ModuleLoad> {
        let mut loaded = self.lock();
        let capability = self.context.gpu.capability;
        let mut loads = Vec::new();
        for set in self.sets.iter().take(1) {
            let manifest = set.manifest();
            for source in manifest.for_gpu(capability) {
                let missing = |kernel: &&Kernel| !loaded.contains_key(kernel.name.as_str());
                let result = match source.kernels.iter().find(missing) {
                    Some(_) => self.load(set, source, &mut loaded),
                    None => Ok(()),
                };
                loads.push(ModuleLoad { path: source.path.clone(), result });
            }
        }
        loads
    }

    /// Adds the kernels of a module that no newer architecture has.
    fn load(
        &self,
        set: &'static Compiled,
        source: &'static Source,
        loaded: &mut HashMap<&'static str, Arc<Function>>,
    ) -> Result<(), DeviceError> {
        let module = Arc::new(Module::new(&self.context, &source.path, set.ptx(source))?);
        for kernel in &source.kernels {
            let best = set.manifest().kernel(&kernel.name, self.context.gpu.capability);
            if best.is_some_and(|(best, _)| std::ptr::eq(best, source)) {
                loaded.insert(&kernel.name, Arc::new(module.function(kernel)?));
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<&'static str, Arc<Function>>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn fault(kernel: &str, reason: &str) -> DeviceError {
    DeviceError::Kernel { kernel: kernel.into(), reason: reason.into() }
}

/// The code of one source.
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
        // The driver expects a number in place of this pointer.
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
        // The driver may defer compilation until the function is first queried: query it now, so
        // that this never happens inside a capture.
        // SAFETY: the function was found just now.
        let shared = unsafe { result::function::get_function_attribute(raw, attribute) };
        let static_shared_bytes = shared.map_err(failed)?.max(0) as u32;
        // Allow all the dynamic shared memory of the GPU, now: attributes cannot be changed during
        // a capture, and the launch states the actual size.
        let attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let most = self.context.gpu.shared_bytes as u32;
        let bytes = most.saturating_sub(static_shared_bytes) as i32;
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

/// One compiled kernel.
#[derive(Debug)]
pub(super) struct Function {
    raw: sys::CUfunction,
    /// Its manifest entry.
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
