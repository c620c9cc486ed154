//! Modules, functions and launches.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;

use super::{Out, api, hook};
use crate::cuda::capture;
use crate::cuda::edit;
use crate::cuda::errors::*;
use crate::cuda::graph::Node;
use crate::cuda::models::{self, Model};
use crate::cuda::report;
use crate::cuda::state::{Function, find, lock, new_handle, take};
use crate::cuda::work::{Handle, Work};
use crate::exec::Launch;
use crate::ptx::{Kernel, Module};

/// Maximum shared memory of a block, unless a function attribute raises it.
const SHARED_BYTES: u32 = 48 << 10;
/// Maximum threads per block.
const MAX_THREADS: u64 = 1024;
/// Maximum extents of a block and of a grid.
const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65535, 65535];
/// Reported registers per thread; PTX does not determine the real number.
const REGISTERS: c_int = 32;
/// `CU_JIT_ERROR_LOG_BUFFER` and its length.
const ERROR_LOG: c_int = 5;
const ERROR_LOG_BYTES: c_int = 6;
/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES` and `..._PREFERRED_SHARED_MEMORY_CARVEOUT`.
const DYNAMIC_SHARED: c_int = 8;
const CARVEOUT: c_int = 9;

/// The text of a module image, if it begins like PTX.
///
/// # Safety
/// `image` must be a valid image for the driver; PTX must be NUL-terminated.
unsafe fn text<'a>(image: *const c_void) -> Option<&'a str> {
    // SAFETY: an image has at least one byte.
    if image.is_null() || !b"/. \t\r\n".contains(unsafe { &*image.cast::<u8>() }) {
        return None;
    }
    // SAFETY: no cubin begins with these bytes, so the image is NUL-terminated text.
    let text = unsafe { CStr::from_ptr(image.cast()) }.to_str().ok()?;
    let begins = |line: &&str| !line.is_empty() && !line.starts_with("//");
    text.lines().map(str::trim).find(begins)?.starts_with(".version").then_some(text)
}

/// Rejects PTX whose version is too new for the driver, or whose target does not fit the GPU.
fn check_header(text: &str, model: &Model) -> Outcome {
    let after = |directive: &str| {
        let line = text.lines().map(str::trim).find(|line| line.starts_with(directive));
        line.map(|line| line[directive.len()..].trim())
    };
    let (version, target) = (after(".version"), after(".target"));
    let version = version.and_then(|text| text.split_once('.'));
    let version = version.and_then(|(major, minor)| {
        Some(major.parse::<u32>().ok()? * 10 + minor.trim().parse::<u32>().ok()?)
    });
    if version.ok_or(INVALID_PTX)? > models::newest_ptx(models::version()) {
        return Err(UNSUPPORTED_PTX_VERSION.into());
    }
    let target = target.and_then(|text| text.split(',').next()?.trim().strip_prefix("sm_"));
    let number = target.map(|name| name.trim_end_matches(|c: char| !c.is_ascii_digit()));
    let number = number.and_then(|text| text.parse::<i32>().ok()).ok_or(INVALID_PTX)?;
    let own = model.capability.0 * 10 + model.capability.1;
    // Code for a target with a letter suffix, such as `sm_90a`, runs only on GPUs of exactly this
    // capability.
    let is_exact = target.is_some_and(|name| !name.ends_with(|c: char| c.is_ascii_digit()));
    let fits = if is_exact { number == own } else { number <= own };
    if fits { Ok(()) } else { Err(NO_BINARY_FOR_GPU.into()) }
}

/// Loads an image. If that fails, `log` is called with the message.
///
/// # Safety
/// As for [`text`].
unsafe fn load(module: Out<Handle>, image: *const c_void, log: impl FnOnce(&str)) -> Outcome {
    let mut state = lock();
    state.healthy()?;
    state.forbid_in_capture()?;
    let context = state.context()?;
    let (memory, model, current) = (context.memory.clone(), context.model(), context.handle);
    let edit = context.gpu.settings.edit.as_deref();
    // Parsing takes long: other calls can use the state meanwhile.
    drop(state);
    // SAFETY: the caller guarantees a valid image.
    let text = unsafe { text(image) }.ok_or(NO_BINARY_FOR_GPU)?;
    check_header(text, model)?;
    let loaded = Module::load(&edit::edited(text, edit), &memory).map_err(|sentence| {
        log(&sentence);
        Failure::from(INVALID_PTX)
    })?;
    let handle = new_handle();
    let mut state = lock();
    let context = state.contexts.get_mut(&current).ok_or(CONTEXT_IS_DESTROYED)?;
    context.modules.insert(handle, loaded);
    module.put(handle)
}

/// Writes a message to the log buffer given by the options.
///
/// # Safety
/// As in the documentation of `cuModuleLoadDataEx`.
unsafe fn write_log(sentence: &str, count: usize, options: *const c_int, values: *mut *mut c_void) {
    let (mut log, mut bytes, mut length) = (ptr::null_mut::<u8>(), 0, ptr::null_mut());
    for i in 0..count {
        // SAFETY: there are `count` options, and as many values.
        let (option, value) = unsafe { (*options.add(i), values.add(i)) };
        // SAFETY: as above.
        let content = unsafe { *value };
        match option {
            ERROR_LOG => log = content.cast(),
            ERROR_LOG_BYTES => (bytes, length) = (content.addr(), value),
            _ => {}
        }
    }
    if log.is_null() || bytes == 0 {
        return;
    }
    let count = sentence.len().min(bytes - 1);
    // SAFETY: the log has `bytes` bytes, enough for `count` bytes and a NUL; `length` is the value
    // of an option.
    unsafe {
        log.copy_from_nonoverlapping(sentence.as_ptr(), count);
        log.add(count).write(0);
        length.write(ptr::without_provenance_mut(count + 1));
    }
}

fn uses(nodes: &[Node], module: Handle) -> bool {
    nodes.iter().any(|node| matches!(&*node.work, Work::Launch(_, of) if *of == module))
}

/// Rejects launches whose grid, block or shared memory exceeds the limits of the GPU or the kernel.
fn check_launch(function: &Function, launch: &Launch) -> Outcome {
    let (grid, block) = (launch.grid, launch.block);
    let name = &launch.kernel.name;
    let refuse = |code, what: String| Err(misuse(code, format!("{name}: {what}")));
    let outside = |extents: [u32; 3], most: [u32; 3]| {
        extents.iter().zip(most).any(|(extent, most)| *extent == 0 || *extent > most)
    };
    let threads = |block: [u32; 3]| block.iter().map(|extent| u64::from(*extent)).product::<u64>();
    if outside(grid, MAX_GRID) {
        return refuse(INVALID_VALUE, format!("grid {grid:?}"));
    }
    if outside(block, MAX_BLOCK) || threads(block) > MAX_THREADS {
        return refuse(INVALID_VALUE, format!("block {block:?}"));
    }
    if let Some(most) = launch.kernel.max_block
        && threads(block) > threads(most)
    {
        let what = format!("block {block:?}, but it was compiled for {most:?}");
        return refuse(LAUNCH_OUT_OF_RESOURCES, what);
    }
    let (bytes, most) = (launch.dynamic_shared, function.dynamic_shared);
    if bytes > most {
        let what = format!("{bytes} bytes of dynamic shared memory, but {most} are allowed");
        return refuse(INVALID_VALUE, what);
    }
    Ok(())
}

/// Copies the parameters of a launch.
///
/// # Safety
/// `pointers` must be null, or point to one pointer per kernel parameter; each must be null or
/// valid for reads of the parameter's size.
unsafe fn parameters_of(kernel: &Kernel, pointers: *mut *mut c_void) -> Outcome<Vec<u8>> {
    let mut bytes = vec![0; kernel.parameter_bytes];
    for (i, parameter) in kernel.parameters.iter().enumerate() {
        let no_value = || misuse(INVALID_VALUE, format!("{}: no parameter {i}", kernel.name));
        if pointers.is_null() {
            return Err(no_value());
        }
        // SAFETY: there is a pointer for each parameter.
        let from = unsafe { *pointers.add(i) }.cast::<u8>();
        let to = bytes.get_mut(parameter.offset..parameter.offset + parameter.bytes);
        let (false, Some(to)) = (from.is_null(), to) else { return Err(no_value()) };
        // SAFETY: `from` is valid for reads of the parameter's size.
        unsafe { from.copy_to(to.as_mut_ptr(), to.len()) };
    }
    Ok(bytes)
}

api! {
    /// Loads an image.
    fn cuModuleLoadData(module: Out<Handle>, image: *const c_void) {
        // SAFETY: the caller provides an image.
        unsafe { load(module, image, |_| ()) }
    }

    /// Loads an image with options; all but the error log are ignored.
    fn cuModuleLoadDataEx(
        module: Out<Handle>,
        image: *const c_void,
        count: c_uint,
        options: *const c_int,
        values: *mut *mut c_void,
    ) {
        // SAFETY: the caller provides this many options and values.
        let log = |sentence: &str| unsafe {
            write_log(sentence, count as usize, options, values);
        };
        // SAFETY: the caller provides an image.
        unsafe { load(module, image, log) }
    }

    /// Unloads a module after all work has ended.
    fn cuModuleUnload(module: Handle) {
        let mut state = lock();
        let context = state.context()?;
        find(&mut context.modules, "module", module)?;
        let graphs = context.graphs.values().chain(context.execs.values().map(|exec| &exec.nodes));
        let users = graphs.filter(|nodes| uses(nodes, module)).count();
        state.forbid_in_capture()?;
        if users > 0 {
            let sentence = format!("{users} graphs still use module {module:#x}");
            report::misuse_in("cuModuleUnload", &misuse(0, sentence));
        }
        let (mut state, waited) = state.finish(None);
        let context = state.context()?;
        take(&mut context.modules, "module", module)?;
        context.functions.retain(|_, function| function.module != module);
        waited
    }

    /// A function by its name.
    fn cuModuleGetFunction(function: Out<Handle>, module: Handle, name: *const c_char) in context {
        let found = find(&mut context.modules, "module", module)?;
        if name.is_null() {
            return Err(misuse(INVALID_VALUE, "a function without a name"));
        }
        // SAFETY: the caller passes a NUL-terminated text.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let kernel = found.kernel(&name).ok_or(NOT_FOUND)?;
        let dynamic_shared = SHARED_BYTES.saturating_sub(kernel.static_shared);
        let handle = new_handle();
        context.functions.insert(handle, Function { module, kernel, dynamic_shared });
        function.put(handle)
    }

    /// A property of a function.
    fn cuFuncGetAttribute(value: Out<c_int>, attribute: c_int, function: Handle) in context {
        let capability = context.model().capability;
        let function = find(&mut context.functions, "function", function)?;
        let kernel = &function.kernel;
        value.put(match attribute {
            0 => kernel.max_block.map_or(MAX_THREADS as u32, |block| block.iter().product()) as i32,
            1 => kernel.static_shared as i32,
            3 => kernel.local_bytes as i32,
            4 => REGISTERS,
            6 => capability.0 * 10 + capability.1,
            DYNAMIC_SHARED => function.dynamic_shared as i32,
            _ => {
                let what = format!("attribute {attribute} is not modelled");
                return Err(misuse(INVALID_VALUE, what));
            }
        })
    }

    /// Sets a property of a function.
    fn cuFuncSetAttribute(function: Handle, attribute: c_int, value: c_int) in context {
        let most = context.model().shared_bytes;
        let function = find(&mut context.functions, "function", function)?;
        let most = most.saturating_sub(function.kernel.static_shared);
        match (attribute, u32::try_from(value)) {
            (DYNAMIC_SHARED, Ok(bytes)) if bytes <= most => function.dynamic_shared = bytes,
            (CARVEOUT, _) => {}
            _ => {
                let what = format!("attribute {attribute} = {value}; the maximum is {most}");
                return Err(misuse(INVALID_VALUE, what));
            }
        }
        Ok(())
    }

    /// Launches a kernel.
    fn cuLaunchKernel(
        function: Handle,
        grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
        block_x: c_uint, block_y: c_uint, block_z: c_uint,
        dynamic_shared: c_uint,
        stream: Handle,
        pointers: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) {
        let declared = hook::take_declared();
        let mut state = lock();
        let context = state.healthy()?;
        context.stream(stream)?;
        hook::check_declared(context, declared.as_deref())?;
        let function = find(&mut context.functions, "function", function)?;
        let kernel: Arc<Kernel> = function.kernel.clone();
        if !extra.is_null() {
            return Err(misuse(NOT_SUPPORTED, "parameters passed in `extra` are not modelled"));
        }
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let parameters = vec![];
        let mut launch = Launch { kernel, grid, block, dynamic_shared, parameters, declared };
        check_launch(function, &launch)?;
        report::launched(&launch.kernel.name);
        // SAFETY: the caller passes the parameters of this kernel.
        launch.parameters = unsafe { parameters_of(&launch.kernel, pointers) }?;
        let work = Work::Launch(launch, function.module);
        capture::submit(context, stream, work)
    }
}
