//! The rules of stream capture. Each violation returns an error code and invalidates the capture.

use std::sync::Arc;
use std::thread;

use super::errors::*;
use super::graph::{Capture, Node};
use super::order;
use super::state::{Context, Point, Step, new_handle};
use super::work::{Handle, Mark, Work};

/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`.
const THREAD_LOCAL: i32 = 1;

/// Enqueues an operation, or captures it.
pub(super) fn submit(context: &mut Context, stream: Handle, work: Work) -> Outcome {
    match captured(context, stream)? {
        None => context.push(stream, Step::Do(Arc::new(work))),
        Some(capture) => {
            let tail = std::mem::take(&mut context.stream(stream)?.tail);
            let node = context.captures.get_mut(&capture).map(|capture| capture.add(work, tail));
            context.stream(stream)?.tail.extend(node);
            Ok(())
        }
    }
}

/// The valid capture that a stream is part of, if any.
pub(super) fn captured(context: &mut Context, stream: Handle) -> Outcome<Option<Handle>> {
    let Some(capture) = context.stream(stream)?.capture else { return Ok(None) };
    if context.captures.get(&capture).is_none_or(|capture| capture.is_invalid) {
        return Err(STREAM_CAPTURE_INVALIDATED.into());
    }
    Ok(Some(capture))
}

/// Invalidates a capture, and returns the error of the violation.
fn violation<T>(context: &mut Context, capture: Handle, code: i32, why: &str) -> Outcome<T> {
    if let Some(capture) = context.captures.get_mut(&capture) {
        capture.is_invalid = true;
    }
    Err(misuse(code, why))
}

/// Rejects calls that are illegal on a capturing stream.
pub(super) fn forbid(context: &mut Context, stream: Handle, why: &str) -> Outcome {
    match captured(context, stream)? {
        None => Ok(()),
        Some(capture) => violation(context, capture, STREAM_CAPTURE_UNSUPPORTED, why),
    }
}

/// Rejects calls that synchronize all streams while any stream is capturing.
pub(super) fn forbid_any(context: &mut Context) -> Outcome {
    let why = "a stream of the context is capturing (on any thread)";
    let mut found = Ok(());
    for capture in context.captures.values_mut() {
        let was_invalid = std::mem::replace(&mut capture.is_invalid, true);
        let failure = || misuse(STREAM_CAPTURE_UNSUPPORTED, why);
        found = Err(if was_invalid { STREAM_CAPTURE_INVALIDATED.into() } else { failure() });
    }
    found
}

/// The mark of an event; `None` if it was never recorded. Rejects events that were recorded in a
/// capture.
pub(super) fn mark(context: &mut Context, event: Handle) -> Outcome<Option<Arc<Mark>>> {
    match context.event(event)?.point.clone() {
        Point::Never => Ok(None),
        Point::Stream(mark) => Ok(Some(mark)),
        Point::Capture(capture, _) => {
            violation(context, capture, CAPTURED_EVENT, "the event was recorded in a capture")
        }
    }
}

/// Begins a capture on this thread.
pub(super) fn begin(context: &mut Context, stream: Handle, mode: i32) -> Outcome {
    forbid(context, stream, "the stream is already capturing")?;
    if mode != THREAD_LOCAL {
        return Err(misuse(NOT_SUPPORTED, format!("capture mode {mode} is not modelled")));
    }
    let (handle, thread) = (new_handle(), thread::current().id());
    let capture = Capture { origin: stream, thread, is_invalid: false, nodes: vec![] };
    context.captures.insert(handle, capture);
    let stream = context.stream(stream)?;
    stream.capture = Some(handle);
    stream.tail.clear();
    Ok(())
}

/// Ends a capture and returns its nodes.
pub(super) fn end(context: &mut Context, stream: Handle) -> Outcome<Vec<Node>> {
    let Some(handle) = context.stream(stream)?.capture else {
        return Err(misuse(ILLEGAL_STATE, "the stream is not capturing"));
    };
    let Some(capture) = context.captures.get(&handle) else {
        return Err(STREAM_CAPTURE_INVALIDATED.into());
    };
    if capture.origin != stream {
        return Err(misuse(STREAM_CAPTURE_UNMATCHED, "the capture began on another stream"));
    }
    if capture.thread != thread::current().id() {
        return Err(misuse(STREAM_CAPTURE_WRONG_THREAD, "another thread began the capture"));
    }
    let tail = context.stream(stream)?.tail.clone();
    let Some(capture) = leave(context, handle) else {
        return Err(STREAM_CAPTURE_INVALIDATED.into());
    };
    if capture.is_invalid {
        return Err(STREAM_CAPTURE_INVALIDATED.into());
    }
    match capture.unjoined(&tail) {
        0 => order::check(&capture.nodes).map(|()| capture.nodes),
        count => Err(misuse(
            STREAM_CAPTURE_UNJOINED,
            format!("the first stream does not wait for {count} operations on other streams"),
        )),
    }
}

/// Removes a stream from its capture, so that it can be destroyed. True if the stream was
/// capturing.
pub(super) fn abandon(context: &mut Context, stream: Handle) -> Outcome<bool> {
    let Some(handle) = context.stream(stream)?.capture else { return Ok(false) };
    if let Some(capture) = context.captures.get_mut(&handle) {
        capture.is_invalid = true;
        if capture.origin == stream {
            leave(context, handle);
        }
    }
    Ok(true)
}

/// Removes a capture; its streams no longer capture.
fn leave(context: &mut Context, handle: Handle) -> Option<Capture> {
    for stream in context.streams.values_mut().filter(|s| s.capture == Some(handle)) {
        stream.capture = None;
        stream.tail.clear();
    }
    context.captures.remove(&handle)
}

/// The `CUstreamCaptureStatus` of a stream.
pub(super) fn status(context: &mut Context, stream: Handle) -> Outcome<i32> {
    let capture = context.stream(stream)?.capture;
    let capture = capture.and_then(|capture| context.captures.get(&capture));
    Ok(capture.map_or(0, |capture| if capture.is_invalid { 2 } else { 1 }))
}

/// Records an event.
pub(super) fn record(context: &mut Context, event: Handle, stream: Handle) -> Outcome {
    context.event(event)?;
    let point = match captured(context, stream)? {
        Some(capture) => Point::Capture(capture, context.stream(stream)?.tail.clone()),
        None => {
            let mark = Arc::new(Mark::default());
            context.push(stream, Step::Record(mark.clone()))?;
            Point::Stream(mark)
        }
    };
    context.event(event)?.point = point;
    Ok(())
}

/// Makes a stream wait for an event. If the event was recorded in a capture, the stream joins the
/// capture.
pub(super) fn wait(context: &mut Context, stream: Handle, event: Handle) -> Outcome {
    let point = context.event(event)?.point.clone();
    match (captured(context, stream)?, point) {
        (None, Point::Never) => Ok(()),
        (None, Point::Stream(mark)) => context.push(stream, Step::Wait(mark)),
        (None, Point::Capture(other, nodes)) => fork(context, stream, other, nodes),
        (Some(capture), Point::Capture(other, nodes)) if capture == other => {
            let tail = &mut context.stream(stream)?.tail;
            tail.extend(nodes);
            tail.sort_unstable();
            tail.dedup();
            Ok(())
        }
        (Some(capture), Point::Capture(other, _)) if context.captures.contains_key(&other) => {
            let why = "the event is from another capture";
            let _ = violation::<()>(context, other, STREAM_CAPTURE_MERGE, why);
            violation(context, capture, STREAM_CAPTURE_MERGE, why)
        }
        (Some(capture), _) => {
            let why = "the event was recorded outside of the capture";
            violation(context, capture, STREAM_CAPTURE_ISOLATION, why)
        }
    }
}

/// Adds a stream to a capture. The stream begins with an empty node; the origin stream must wait
/// for it before the capture ends.
fn fork(context: &mut Context, stream: Handle, other: Handle, nodes: Vec<usize>) -> Outcome {
    let Some(capture) = context.captures.get_mut(&other) else {
        return Err(misuse(CAPTURED_EVENT, "the event was recorded in a capture that has ended"));
    };
    if capture.is_invalid {
        return Err(STREAM_CAPTURE_INVALIDATED.into());
    }
    let node = capture.add(Work::Nothing, nodes);
    let stream = context.stream(stream)?;
    stream.capture = Some(other);
    stream.tail = vec![node];
    Ok(())
}
