//! Streams and captures.

use std::ffi::{c_int, c_uint};
use std::sync::Arc;

use super::device::PRIORITIES;
use super::{Out, api};
use crate::cuda::capture;
use crate::cuda::errors::*;
use crate::cuda::report;
use crate::cuda::state::{Stream, lock, new_handle};
use crate::cuda::work::Handle;

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: c_uint = 1;

/// Creates a stream.
fn create(stream: Out<Handle>, flags: c_uint, priority: c_int) -> Outcome {
    let mut state = lock();
    let context = state.healthy()?;
    if flags != NON_BLOCKING {
        return Err(misuse(
            NOT_SUPPORTED,
            "a blocking stream, for which the default stream waits, is not modelled",
        ));
    }
    let handle = new_handle();
    // Priorities outside the range are clamped.
    let priority = priority.clamp(PRIORITIES[1], PRIORITIES[0]);
    context.streams.insert(handle, Stream { priority, ..Stream::default() });
    stream.put(handle)
}

api! {
    /// Creates a stream.
    fn cuStreamCreate(stream: Out<Handle>, flags: c_uint) {
        create(stream, flags, 0)
    }

    /// Creates a stream with a priority.
    fn cuStreamCreateWithPriority(stream: Out<Handle>, flags: c_uint, priority: c_int) {
        create(stream, flags, priority)
    }

    /// The priority of a stream.
    fn cuStreamGetPriority(stream: Handle, priority: Out<c_int>) {
        let mut state = lock();
        priority.put(state.healthy()?.stream(stream)?.priority)
    }

    /// Destroys a stream; work that it already contains still runs.
    fn cuStreamDestroy_v2(stream: Handle) {
        let mut state = lock();
        let context = state.context()?;
        if capture::abandon(context, stream)? {
            report::misuse_in("cuStreamDestroy_v2", &misuse(0, "destroyed during its capture"));
        }
        let found = context.stream(stream)?;
        if found.queue.is_empty() {
            context.streams.remove(&stream);
        } else {
            found.is_destroyed = true;
        }
        context.check()
    }

    /// Waits until all work in a stream has ended.
    fn cuStreamSynchronize(stream: Handle) {
        let mut state = lock();
        state.healthy()?.stream(stream)?;
        state.forbid_in_capture()?;
        capture::forbid(state.context()?, stream, "a wait for a captured stream")?;
        state.finish(Some(stream)).1
    }

    /// Succeeds if a stream is empty.
    fn cuStreamQuery(stream: Handle) {
        let mut state = lock();
        state.healthy()?.stream(stream)?;
        state.forbid_in_capture()?;
        let context = state.context()?;
        capture::forbid(context, stream, "a query of a captured stream")?;
        if context.stream(stream)?.queue.is_empty() { Ok(()) } else { Err(NOT_READY.into()) }
    }

    /// Makes a stream wait for an event.
    fn cuStreamWaitEvent(stream: Handle, event: Handle, flags: c_uint) in context {
        if flags != 0 {
            return Err(misuse(INVALID_VALUE, format!("flags {flags}")));
        }
        capture::wait(context, stream, event)
    }

    /// Begins a capture.
    fn cuStreamBeginCapture_v2(stream: Handle, mode: c_int) {
        capture::begin(lock().healthy()?, stream, mode)
    }

    /// Ends a capture.
    fn cuStreamEndCapture(stream: Handle, graph: Out<Handle>) in context {
        graph.put(0)?;
        let nodes = capture::end(context, stream)?;
        let handle = new_handle();
        context.graphs.insert(handle, Arc::new(nodes));
        graph.put(handle)
    }

    /// Gets the capture status of a stream.
    fn cuStreamIsCapturing(stream: Handle, status: Out<c_int>) {
        let mut state = lock();
        status.put(capture::status(state.healthy()?, stream)?)
    }
}
