//! Streams, events and captured graphs.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::{
    self, CUevent_flags_enum as EventFlags, CUevent_wait_flags_enum as WaitFlags,
};
use cudarc::driver::{DriverError, result};

use super::context::{Context, OrFault, reason};
use super::memory::PinnedMemory;
use super::module::Function;
use crate::{DeviceCopy, DeviceError, DevicePtr, Launch, Priority};

/// The driver's number for a priority. Higher priorities have lower numbers: current GPUs support 0
/// to -5.
fn number_of(priority: Priority, least: c_int, greatest: c_int) -> c_int {
    match priority {
        Priority::Low => least,
        Priority::Normal => least + (greatest - least) / 2,
        Priority::High => greatest,
    }
}

/// A queue of work.
#[derive(Debug)]
pub(super) struct Stream {
    raw: sys::CUstream,
    context: Arc<Context>,
}

// SAFETY: a stream is a handle, which several threads may use at once if the context is current on
// each. (Only a capture is bound to the thread that began it; the driver rejects calls from other
// threads.)
unsafe impl Send for Stream {}
// SAFETY: as for `Send`.
unsafe impl Sync for Stream {}

impl Stream {
    /// A stream that runs concurrently with all other streams, including the null stream.
    pub(super) fn new(context: &Arc<Context>, priority: Priority) -> Result<Self, DeviceError> {
        context.bind()?;
        let (mut least, mut greatest, mut raw) = (0, 0, ptr::null_mut());
        let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the first call writes two numbers, the second one handle.
        let made = unsafe {
            sys::cuCtxGetStreamPriorityRange(&mut least, &mut greatest).result().and_then(|()| {
                let number = number_of(priority, least, greatest);
                sys::cuStreamCreateWithPriority(&mut raw, flags, number).result()
            })
        };
        made.or_fault(|| "creating a stream".into())?;
        Ok(Self { raw, context: context.clone() })
    }

    /// The handle, valid as long as `self`.
    pub(super) fn raw(&self) -> sys::CUstream {
        self.raw
    }

    /// Records `event` after all work that was submitted to the stream so far.
    pub(super) fn record(&self, event: &Event) -> Result<(), DeviceError> {
        self.context.bind()?;
        // SAFETY: both handles are alive, and of one context.
        unsafe { result::event::record(event.raw, self.raw) }
            .or_fault(|| "recording an event".into())
    }

    /// Makes later work wait for `event`.
    pub(super) fn wait(&self, event: &Event) -> Result<(), DeviceError> {
        self.context.bind()?;
        let flags = WaitFlags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: both handles are alive, and of one context.
        match unsafe { result::stream::wait_event(self.raw, event.raw, flags) } {
            Err(e) if e.0 == sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION => {
                Err(DeviceError::NotCapturable("a wait for work outside the capture"))
            }
            result => result.or_fault(|| "waiting for an event".into()),
        }
    }

    /// Launches a kernel. `pointers` point to its arguments, each of the size of its parameter.
    pub(super) fn launch(
        &self,
        function: &Function,
        launch: &Launch,
        pointers: &mut [*mut c_void],
    ) -> Result<(), DeviceError> {
        self.context.bind()?;
        self.context.declare(launch.touches());
        let ([gx, gy, gz], [bx, by, bz]) = (launch.grid, launch.block);
        // SAFETY: function and stream are alive, and of one context; graphs that hold the function
        // are dropped before its module. The arguments were packed to the sizes of the kernel's
        // parameters, and the driver copies them before it returns. The kernel accesses memory by
        // the given addresses; tests on the emulated driver check that the same PTX stays within
        // its buffers.
        let launched = unsafe {
            let shared = launch.shared_bytes;
            let handle = function.raw();
            result::launch_kernel(handle, (gx, gy, gz), (bx, by, bz), shared, self.raw, pointers)
        };
        launched.map_err(|e| DeviceError::Kernel {
            kernel: launch.kernel.to_string(),
            reason: format!(
                "grid {:?}, block {:?}, {} bytes of dynamic shared memory: {}",
                launch.grid,
                launch.block,
                launch.shared_bytes,
                reason(e)
            ),
        })
    }

    /// Copies pinned memory to the device.
    pub(super) fn upload(
        &self,
        to: DevicePtr,
        from: &PinnedMemory,
        offset: usize,
        bytes: usize,
    ) -> Result<(), DeviceError> {
        self.context.bind()?;
        let from = from.host(offset, bytes).cast();
        // SAFETY: the source is pinned memory, in range (`host` asserts it) and alive as long as
        // the device, which waits for its work before it drops pinned memory. The caller has
        // checked that the target is inside an allocation; the driver checks it too.
        unsafe { sys::cuMemcpyHtoDAsync_v2(to, from, bytes, self.raw) }
            .result()
            .or_fault(|| format!("copying {bytes} bytes to the GPU"))
    }

    /// Copies within device memory.
    pub(super) fn copy(&self, copy: &DeviceCopy) -> Result<(), DeviceError> {
        self.context.bind()?;
        let DeviceCopy { to, from, bytes } = *copy;
        // SAFETY: the caller has checked that both ranges are inside allocations; the driver checks
        // it too.
        unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, self.raw) }
            .result()
            .or_fault(|| format!("copying {bytes} bytes on the GPU"))
    }

    /// Waits for the stream, and copies device memory out.
    pub(super) fn download(&self, from: DevicePtr, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.context.bind()?;
        let call = || "copying bytes from the GPU".to_string();
        // SAFETY: the slice is as long as the copy, and borrowed until the copy is done: the second
        // call waits for it, and no return precedes that call.
        let (copied, waited) = unsafe {
            let copied = match bytes {
                [] => Ok(()),
                _ => result::memcpy_dtoh_async(bytes, from, self.raw),
            };
            (copied, result::stream::synchronize(self.raw))
        };
        copied.and(waited).or_fault(call)
    }

    /// Checks whether work has failed, without waiting for it.
    pub(super) fn check(&self) -> Result<(), DeviceError> {
        self.context.bind()?;
        // SAFETY: the stream is alive.
        let status = unsafe { sys::cuStreamQuery(self.raw) };
        match status {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(()),
            status => status.result().or_fault(|| "running a step".into()),
        }
    }

    /// Starts capturing this stream, on this thread.
    pub(super) fn begin_capture(&self) -> Result<(), DeviceError> {
        self.context.bind()?;
        // Thread-local, so that calls from the thread that fills pinned memory meanwhile do not
        // affect the capture.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is alive.
        unsafe { result::stream::begin_capture(self.raw, mode) }
            .or_fault(|| "beginning a capture".into())
    }

    /// True if this stream is being captured.
    pub(super) fn is_captured(&self) -> Result<bool, DeviceError> {
        self.context.bind()?;
        // SAFETY: the stream is alive.
        let status = unsafe { result::stream::is_capturing(self.raw) }
            .or_fault(|| "querying the capture state".into())?;
        Ok(status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// Ends the capture, and returns the graph, instantiated and uploaded to the GPU.
    pub(super) fn end_capture(&self) -> Result<Graph, DeviceError> {
        self.context.bind()?;
        let call = || "ending a capture".to_string();
        // SAFETY: the stream is alive.
        let captured = unsafe { result::stream::end_capture(self.raw) }.or_fault(call)?;
        if captured.is_null() {
            let reason = "an operation that cannot be captured invalidated it".into();
            return Err(DeviceError::Driver { call: call(), reason });
        }
        let mut exec = ptr::null_mut();
        // Kernels keep the priorities of the streams that they were captured on; by default, all
        // would have the priority of the replaying stream.
        let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY.0;
        // SAFETY: the graph is alive until it is destroyed, once, after it was instantiated; the
        // instantiated graph does not need it.
        let made = unsafe {
            let made = sys::cuGraphInstantiateWithFlags(&mut exec, captured, flags.into()).result();
            made.and(result::graph::destroy(captured))
        };
        made.or_fault(|| "instantiating a graph".into())?;
        let graph = Graph { exec: Mutex::new(Exec(exec)), context: self.context.clone() };
        // SAFETY: graph and stream are alive, and of one context.
        unsafe { result::graph::upload(exec, self.raw) }.or_fault(|| "uploading a graph".into())?;
        Ok(graph)
    }

    /// Launches a graph.
    pub(super) fn replay(&self, graph: &Graph) -> Result<(), DeviceError> {
        self.context.bind()?;
        let exec = graph.exec.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: graph and stream are alive, and of one context; the lock keeps other threads
        // from using the graph at the same time, which the driver does not allow.
        unsafe { result::graph::launch(exec.0, self.raw) }.or_fault(|| "replaying a graph".into())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: the handle is from `new`, and released once.
            let _ = unsafe { result::stream::destroy(self.raw) };
        }
    }
}

/// A point in a stream.
#[derive(Debug)]
pub(super) struct Event {
    raw: sys::CUevent,
    context: Arc<Context>,
}

// SAFETY: an event is a handle, which several threads may use at once if the context is current on
// each.
unsafe impl Send for Event {}
// SAFETY: as for `Send`.
unsafe impl Sync for Event {}

impl Event {
    /// An event; without timing, synchronization is faster.
    pub(super) fn new(context: &Arc<Context>, timing: bool) -> Result<Self, DeviceError> {
        context.bind()?;
        let flags =
            if timing { EventFlags::CU_EVENT_DEFAULT } else { EventFlags::CU_EVENT_DISABLE_TIMING };
        let raw = result::event::create(flags).or_fault(|| "creating an event".into())?;
        Ok(Self { raw, context: context.clone() })
    }

    /// True unless work before the event is still running. Also true for an event that was never
    /// recorded, and on a failed device.
    pub(super) fn is_done(&self) -> bool {
        // SAFETY: the event is alive.
        let query = || unsafe { sys::cuEventQuery(self.raw) };
        self.context.bind().is_err() || query() != sys::CUresult::CUDA_ERROR_NOT_READY
    }

    /// Waits for the event.
    pub(super) fn wait(&self) -> Result<(), DeviceError> {
        self.context.bind()?;
        // SAFETY: the event is alive.
        unsafe { result::event::synchronize(self.raw) }.or_fault(|| "waiting for an event".into())
    }

    /// Waits for this event, and returns the milliseconds since `start`.
    pub(super) fn ms_since(&self, start: &Event) -> Result<f32, DeviceError> {
        self.context.bind()?;
        // SAFETY: both events are alive, and of one context.
        let elapsed = unsafe {
            let waited: Result<(), DriverError> = result::event::synchronize(self.raw);
            waited.and_then(|()| result::event::elapsed(start.raw, self.raw))
        };
        elapsed.or_fault(|| "reading the time between events".into())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: the handle is from `new`, and released once.
            let _ = unsafe { result::event::destroy(self.raw) };
        }
    }
}

/// A captured graph, instantiated.
#[derive(Debug)]
pub(super) struct Graph {
    exec: Mutex<Exec>,
    context: Arc<Context>,
}

#[derive(Debug)]
struct Exec(sys::CUgraphExec);

// SAFETY: a graph is a handle that belongs to no thread; the mutex around it serializes access.
unsafe impl Send for Exec {}

impl Drop for Graph {
    fn drop(&mut self) {
        let exec = self.exec.get_mut().unwrap_or_else(PoisonError::into_inner);
        if self.context.bind().is_ok() {
            // SAFETY: the handle is from `end_capture`, and released once.
            let _ = unsafe { result::graph::exec_destroy(exec.0) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn higher_stream_priority_has_lower_number() {
        let numbers = |least, greatest| {
            [Priority::Low, Priority::Normal, Priority::High].map(|p| number_of(p, least, greatest))
        };
        assert_eq!(numbers(0, -5), [0, -2, -5]);
        assert_eq!(numbers(0, -2), [0, -1, -2]);
        assert_eq!(numbers(0, 0), [0; 3], "a GPU without priorities");
    }
}
