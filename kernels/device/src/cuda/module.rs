//! Finds kernels by name, and loads them as machine code for this GPU or as PTX that the driver
//! compiles.
#![allow(unsafe_code)]

use std::collections::{BTreeSet, HashMap};
use std::ffi::{CString, c_void};
use std::num::NonZero;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::thread;

use cudarc::driver::sys::{self, CUfunction_attribute_enum as Attribute, CUjit_option_enum as Jit};
use cudarc::driver::{DriverError, result};

use super::context::{Context, OrFault, reason};
use crate::manifest::{Compiled, Kernel, Resources, Source};
use crate::{DeviceError, ModuleLoad, Remark};

/// Threads on which the driver compiles PTX.
const MAX_THREADS: usize = 8;

/// Compiled kernels; each module is loaded when one of its kernels is first requested.
pub(super) struct Kernels {
    context: Arc<Context>,
    sets: Vec<&'static Compiled>,
    loaded: Mutex<HashMap<&'static str, Arc<Function>>>,
    /// Called before the driver compiles kernels, which takes a while.
    notice: fn(&str),
    noticed: Once,
}

/// A source, and the set of compiled kernels that contains it.
type Member = (&'static Compiled, &'static Source);

impl Kernels {
    pub(super) fn new(
        context: &Arc<Context>,
        sets: &[&'static Compiled],
        notice: fn(&str),
    ) -> Self {
        let (context, sets) = (context.clone(), sets.to_vec());
        Self { context, sets, loaded: Mutex::default(), notice, noticed: Once::new() }
    }

    /// The kernel of this name, compiled for the newest architecture that the GPU runs.
    pub(super) fn get(&self, name: &str) -> Result<Arc<Function>, DeviceError> {
        if let Some(function) = self.lock().get(name) {
            return Ok(function.clone());
        }
        let Some(member) = self.member(name) else {
            let capability = self.context.gpu.capability;
            let reason = format!("no compiled kernel of this name runs on sm_{capability}");
            return Err(fault(name, &reason));
        };
        self.load(member)?;
        self.lock().get(name).cloned().ok_or_else(|| fault(name, "its module does not contain it"))
    }

    /// Loads the `wanted` kernels that are not loaded yet; if `None`, all kernels of the first set,
    /// which training uses. Tries all modules, even if one fails. Uses several threads, as the
    /// driver has to compile modules without machine code for this GPU.
    pub(super) fn load_all(&self, wanted: Option<&BTreeSet<&str>>) -> Vec<ModuleLoad> {
        let members: Vec<Member> = match wanted {
            Some(names) => names.iter().filter_map(|name| self.member(name)).collect(),
            None => {
                let first = self.sets.iter().take(1);
                let capability = self.context.gpu.capability;
                first.flat_map(|s| s.manifest().for_gpu(capability).map(|m| (*s, m))).collect()
            }
        };
        let mut missing: Vec<Member> = Vec::new();
        for member in members {
            let is_there = missing.iter().any(|(_, other)| ptr::eq(*other, member.1));
            if !is_there && !self.is_loaded(member) {
                missing.push(member);
            }
        }
        let threads = thread::available_parallelism().map_or(1, NonZero::get).min(MAX_THREADS);
        let share = missing.len().div_ceil(threads).max(1);
        thread::scope(|scope| {
            let load =
                |part: &[Member]| part.iter().map(|m| self.load_result(*m)).collect::<Vec<_>>();
            let parts: Vec<_> =
                missing.chunks(share).map(|part| scope.spawn(move || load(part))).collect();
            parts.into_iter().flat_map(|part| part.join().unwrap_or_default()).collect()
        })
    }

    /// The source and set of a kernel, for the newest architecture that the GPU runs.
    fn member(&self, name: &str) -> Option<Member> {
        let capability = self.context.gpu.capability;
        self.sets.iter().find_map(|set| {
            let (source, _) = set.manifest().kernel(name, capability)?;
            Some((*set, source))
        })
    }

    fn is_loaded(&self, (_, source): Member) -> bool {
        let loaded = self.lock();
        source.kernels.iter().all(|kernel| loaded.contains_key(kernel.name.as_str()))
    }

    fn load_result(&self, member: Member) -> ModuleLoad {
        let path = member.1.path.clone();
        match self.load(member) {
            Ok(remarks) => ModuleLoad { path, result: Ok(()), remarks },
            Err(fault) => ModuleLoad { path, result: Err(fault), remarks: vec![] },
        }
    }

    /// Loads a module and adds its kernels, except for kernels that the GPU can run from a module
    /// of a newer architecture. Returns remarks about the added kernels.
    fn load(&self, (set, source): Member) -> Result<Vec<Remark>, DeviceError> {
        let module = Arc::new(self.module(set, source)?);
        let mut remarks = Vec::new();
        for kernel in &source.kernels {
            let best = set.manifest().kernel(&kernel.name, self.context.gpu.capability);
            if best.is_some_and(|(best, _)| ptr::eq(best, source)) {
                let function = module.function(kernel)?;
                remarks.extend(self.remark(kernel, function.resources));
                self.lock().insert(&kernel.name, Arc::new(function));
            }
        }
        Ok(remarks)
    }

    /// Loads the machine code for this GPU, if it is shipped and the driver accepts it; else the
    /// driver compiles the PTX.
    fn module(&self, set: &Compiled, source: &Source) -> Result<Module, DeviceError> {
        let code = set.machine_code(source, self.context.gpu.capability);
        if let Some(module) = code.and_then(|code| Module::of_code(&self.context, code)) {
            return Ok(module);
        }
        self.noticed.call_once(|| {
            (self.notice)(&format!("compiling kernels for this GPU, once: {NO_CODE}"));
        });
        Module::of_ptx(&self.context, &source.path, set.ptx(source))
    }

    /// The kernel's resources, if they differ from the manifest's, which plans assume: more local
    /// memory makes a kernel slower.
    fn remark(&self, kernel: &Kernel, takes: [u32; 2]) -> Option<Remark> {
        let planned = planned(kernel, self.context.gpu.capability.major)?;
        let planned = [planned.registers, planned.stack_bytes];
        (takes != planned).then(|| Remark { kernel: kernel.name.clone(), takes, planned })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<&'static str, Arc<Function>>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Kernels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernels").field("loaded", &self.lock().len()).finish_non_exhaustive()
    }
}

/// Why the driver has to compile.
const NO_CODE: &str = "this program has no machine code for it that the driver accepts";

/// A kernel's resources in the manifest for a GPU of this major compute capability, if it was
/// assembled for one.
fn planned(kernel: &Kernel, major: u32) -> Option<Resources> {
    let prefix = format!("sm_{major}");
    kernel.on.iter().find(|(gpu, _)| gpu.starts_with(&prefix)).map(|(_, planned)| *planned)
}

fn fault(kernel: &str, reason: &str) -> DeviceError {
    DeviceError::Kernel { kernel: kernel.into(), reason: reason.into() }
}

/// The loaded code of one source.
#[derive(Debug)]
struct Module {
    raw: sys::CUmodule,
    context: Arc<Context>,
}

// SAFETY: a module is a handle, which several threads may use at once if the context is current on
// each.
unsafe impl Send for Module {}
// SAFETY: as for `Send`.
unsafe impl Sync for Module {}

impl Module {
    /// `None` if the driver rejects the code, which is for a different GPU or a newer driver.
    fn of_code(context: &Arc<Context>, code: &[u8]) -> Option<Self> {
        context.bind().ok()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the image is an object file from the assembler, which contains its own length; it
        // outlives the call.
        let made = unsafe { sys::cuModuleLoadData(&mut raw, code.as_ptr().cast()) };
        made.result().ok()?;
        Some(Self { raw, context: context.clone() })
    }

    fn of_ptx(context: &Arc<Context>, path: &str, ptx: &str) -> Result<Self, DeviceError> {
        context.bind()?;
        let failed = |reason: String| DeviceError::Driver {
            call: format!("compiling the PTX of {path} for this GPU"),
            reason,
        };
        let image = CString::new(ptx).map_err(|e| failed(e.to_string()))?;
        let mut raw = ptr::null_mut();
        let mut log = vec![0u8; 4096];
        let mut options = [Jit::CU_JIT_ERROR_LOG_BUFFER, Jit::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        // The driver expects the length of the log, a number, as a pointer.
        let mut values: [*mut c_void; 2] =
            [log.as_mut_ptr().cast(), ptr::without_provenance_mut(log.len() - 1)];
        // SAFETY: the image is a zero-terminated string; there are two options and two values, the
        // log buffer and its length. All outlive the call.
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
        // SAFETY: the module is alive, and the returned function keeps it alive.
        let raw = unsafe { result::module::get_function(self.raw, name) }.map_err(failed)?;
        let attribute = Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
        // The driver may defer compilation until the function is first queried: query it now, so
        // that this never happens inside a capture.
        // SAFETY: the function was found just now.
        let shared = unsafe { result::function::get_function_attribute(raw, attribute) };
        let static_shared_bytes = shared.map_err(failed)?.max(0) as u32;
        // Allows the GPU's maximum of dynamic shared memory now, as attributes cannot be changed
        // during a capture; each launch states the size that it uses.
        let attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let most = self.context.gpu.shared_bytes as u32;
        let bytes = most.saturating_sub(static_shared_bytes) as i32;
        // SAFETY: as above.
        unsafe { result::function::set_function_attribute(raw, attribute, bytes) }
            .or_fault(|| format!("giving `{}` {bytes} bytes of shared memory", kernel.name))?;
        let count = |attribute| {
            // SAFETY: as above.
            let count = unsafe { result::function::get_function_attribute(raw, attribute) };
            Ok(count.map_err(failed)?.max(0) as u32)
        };
        let resources = [
            count(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            count(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
        ];
        Ok(Function { raw, kernel, resources, _module: self.clone() })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: the handle is from `new`, and released once; functions hold the module, and
            // the device drops its graphs before its kernels.
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
    /// Registers, and bytes of local memory, per thread.
    resources: [u32; 2],
    /// Keeps the code alive.
    _module: Arc<Module>,
}

// SAFETY: a function is a handle, which several threads may use at once if the context is current
// on each. It keeps its module alive.
unsafe impl Send for Function {}
// SAFETY: as for `Send`.
unsafe impl Sync for Function {}

impl Function {
    /// The driver's handle; alive as long as `self`.
    pub(super) fn raw(&self) -> sys::CUfunction {
        self.raw
    }
}
