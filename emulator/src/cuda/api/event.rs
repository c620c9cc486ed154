//! Events.

use std::ffi::c_uint;
use std::time::Instant;

use super::{Out, api};
use crate::cuda::capture;
use crate::cuda::errors::*;
use crate::cuda::state::{Context, Event, Point, lock, new_handle, take};
use crate::cuda::work::Handle;

/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: c_uint = 2;
/// All flags, including `CU_EVENT_BLOCKING_SYNC`.
const MAX_FLAGS: c_uint = 3;

/// The time at which an event was reached.
fn time(context: &mut Context, event: Handle) -> Outcome<Instant> {
    let mark = capture::mark(context, event)?;
    if !context.event(event)?.has_time {
        return Err(misuse(INVALID_HANDLE, "the event was created without timing"));
    }
    let never = || misuse(INVALID_HANDLE, "the event was never recorded");
    mark.ok_or_else(never)?.time().ok_or(NOT_READY.into())
}

api! {
    /// Creates an event.
    fn cuEventCreate(event: Out<Handle>, flags: c_uint) in context {
        if flags > MAX_FLAGS {
            return Err(misuse(INVALID_VALUE, format!("flags {flags}")));
        }
        let (handle, has_time) = (new_handle(), flags & DISABLE_TIMING == 0);
        context.events.insert(handle, Event { has_time, point: Point::Never });
        event.put(handle)
    }

    /// Destroys an event. Streams that already wait for the event continue to do so.
    fn cuEventDestroy_v2(event: Handle) {
        let mut state = lock();
        let context = state.context()?;
        take(&mut context.events, "event", event)?;
        context.check()
    }

    /// Records an event after all work that is currently in the stream.
    fn cuEventRecord(event: Handle, stream: Handle) {
        capture::record(lock().healthy()?, event, stream)
    }

    /// Succeeds if an event has been reached.
    fn cuEventQuery(event: Handle) {
        let mut state = lock();
        let mark = capture::mark(state.healthy()?, event)?;
        state.forbid_in_capture()?;
        let is_done = mark.is_none_or(|mark| mark.is_done());
        if is_done { Ok(()) } else { Err(NOT_READY.into()) }
    }

    /// Waits for an event.
    fn cuEventSynchronize(event: Handle) {
        let mut state = lock();
        let context = state.healthy()?;
        let (handle, mark) = (context.handle, capture::mark(context, event)?);
        state.forbid_in_capture()?;
        let is_done = |_: &Context| mark.as_ref().is_none_or(|mark| mark.is_done());
        state.wait_until(handle, is_done).1
    }

    /// Milliseconds between two events.
    fn cuEventElapsedTime(milliseconds: Out<f32>, start: Handle, end: Handle) in context {
        let (start, end) = (time(context, start)?, time(context, end)?);
        let after = end.saturating_duration_since(start).as_secs_f64();
        let before = start.saturating_duration_since(end).as_secs_f64();
        milliseconds.put(((after - before) * 1e3) as f32)
    }
}
