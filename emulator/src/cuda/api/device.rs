//! The API of the driver, its devices and contexts.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::ptr;

use super::{Out, api, exit, why};
use crate::cuda::capture;
use crate::cuda::errors::*;
use crate::cuda::models::{self, Gpu, Model};
use crate::cuda::report;
use crate::cuda::state::{Context, changed, current, lock, set_current};
use crate::cuda::work::Handle;
use crate::cuda::worker;

/// Stream priority range, as on current GPUs.
pub(super) const PRIORITIES: [c_int; 2] = [0, -5];

fn gpu(device: c_int) -> Outcome<&'static Gpu> {
    let found = usize::try_from(device).ok().and_then(models::gpu);
    found.ok_or_else(|| misuse(INVALID_DEVICE, format!("there is no device {device}")))
}

fn model(device: c_int) -> Outcome<&'static Model> {
    Ok(&gpu(device)?.model)
}

api! {
    /// The CUDA version of the driver.
    fn cuDriverGetVersion(version: Out<c_int>) {
        version.put(models::version())
    }

    /// Starts the driver.
    fn cuInit(flags: c_uint) {
        if flags != 0 {
            return Err(misuse(INVALID_VALUE, format!("flags {flags}")));
        }
        if models::count() == 0 {
            return Err(NO_DEVICE.into());
        }
        exit::watch();
        lock().is_initialized = true;
        Ok(())
    }

    /// The description of an error, with details if it is this thread's last error.
    fn cuGetErrorString(code: c_int, text: Out<*const c_char>) {
        let found = texts(code);
        let with = |text: &'static CStr| match why(code) {
            // The text is leaked: it must stay valid, and a process has few errors.
            Some(why) => CString::new(format!("{}: {why}", text.to_string_lossy()))
                .map_or(text.as_ptr(), |text| text.into_raw().cast_const()),
            None => text.as_ptr(),
        };
        text.put(found.map_or(ptr::null(), |(_, text)| with(text)))?;
        found.map_or(Err(INVALID_VALUE.into()), |_| Ok(()))
    }

    /// The name of an error.
    fn cuGetErrorName(code: c_int, text: Out<*const c_char>) {
        let found = texts(code);
        text.put(found.map_or(ptr::null(), |(name, _)| name.as_ptr()))?;
        found.map_or(Err(INVALID_VALUE.into()), |_| Ok(()))
    }

    /// The number of devices visible to the process.
    fn cuDeviceGetCount(count: Out<c_int>) {
        count.put(models::count() as c_int)
    }

    /// A device by its number.
    fn cuDeviceGet(device: Out<c_int>, ordinal: c_int) {
        model(ordinal)?;
        device.put(ordinal)
    }

    /// The name of a device.
    fn cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int) {
        let model = model(device)?;
        let length = usize::try_from(length).unwrap_or(0);
        if name.is_null() || length == 0 {
            return Err(misuse(INVALID_VALUE, "the pointer for the name is null"));
        }
        let count = model.name.len().min(length - 1);
        // SAFETY: the caller provides a buffer of that length, and `count` bytes and a NUL fit.
        unsafe {
            name.cast::<u8>().copy_from_nonoverlapping(model.name.as_ptr(), count);
            name.add(count).write(0);
        }
        Ok(())
    }

    /// The UUID of a device.
    fn cuDeviceGetUuid(uuid: Out<[u8; 16]>, device: c_int) {
        model(device)?;
        uuid.put([device as u8 + 1; 16])
    }

    /// A property of a device.
    fn cuDeviceGetAttribute(value: Out<c_int>, attribute: c_int, device: c_int) {
        let unknown = || misuse(INVALID_VALUE, format!("attribute {attribute} is not modelled"));
        value.put(model(device)?.attribute(attribute).ok_or_else(unknown)?)
    }

    /// The memory of a device.
    fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: c_int) {
        bytes.put(model(device)?.memory_bytes)
    }

    /// Takes a reference to the primary context. The first reference creates the context.
    fn cuDevicePrimaryCtxRetain(context: Out<Handle>, device: c_int) {
        let (gpu, device) = (gpu(device)?, device as usize);
        let mut state = lock();
        let found = state.contexts.values_mut().find(|context| context.device == device);
        if let Some(found) = found {
            found.references += 1;
            return context.put(found.handle);
        }
        let mut made = Context::new(device, gpu);
        made.references = 1;
        context.put(made.handle)?;
        worker::start(&made);
        state.contexts.insert(made.handle, made);
        Ok(())
    }

    /// Releases a reference to the primary context. The last release destroys the context.
    fn cuDevicePrimaryCtxRelease_v2(device: c_int) {
        model(device)?;
        let mut state = lock();
        let found = state.contexts.values_mut().find(|c| c.device == device as usize);
        let none = || misuse(INVALID_CONTEXT, format!("device {device} has no retained context"));
        let context = found.ok_or_else(none)?;
        context.references -= 1;
        if context.references > 0 {
            return Ok(());
        }
        let (handle, last) = (context.handle, context.order);
        let (mut state, waited) = state.wait_until(handle, |context| context.is_done(None, last));
        let revived = state.contexts.get(&handle).is_none_or(|context| context.references > 0);
        if !revived && let Some(context) = state.contexts.remove(&handle) {
            changed();
            if context.failed.is_none() {
                context.leaks().iter().for_each(|leak| report::finding(leak));
            }
        }
        waited
    }

    /// Makes a context current on this thread, even if it has failed.
    fn cuCtxSetCurrent(context: Handle) {
        if context != 0 && !lock().contexts.contains_key(&context) {
            return Err(misuse(INVALID_CONTEXT, format!("context {context:#x} was released")));
        }
        set_current(context);
        Ok(())
    }

    /// The context current on this thread.
    fn cuCtxGetCurrent(context: Out<Handle>) {
        context.put(current())
    }

    /// The device of the current context.
    fn cuCtxGetDevice(device: Out<c_int>) {
        let number = lock().context()?.device;
        device.put(number as c_int)
    }

    /// Waits until all work of the context has ended.
    fn cuCtxSynchronize() {
        let mut state = lock();
        state.healthy()?;
        state.forbid_in_capture()?;
        capture::forbid_any(state.context()?)?;
        state.finish(None).1
    }

    /// The lowest and the highest priority of streams.
    fn cuCtxGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) {
        lock().healthy()?;
        least.put(PRIORITIES[0])?;
        greatest.put(PRIORITIES[1])
    }
}
