//! The launch that takes the time where it stands in a stream: what time lines are made of.

use super::{Access, Arg, DevicePtr, Launch, Touch};

/// Bytes of a stamp: nanoseconds as `unsigned long long`.
pub const STAMP_BYTES: usize = 8;

/// Writes the time to `to`, which is aligned to 8. The clock is the device's own, begins anywhere,
/// and is the same for all streams.
pub fn stamp(to: DevicePtr) -> Launch {
    let touch = Touch { ptr: to, bytes: STAMP_BYTES, access: Access::Write };
    Launch::new("stamp", [1, 1, 1]).block(32).arg(Arg::Buffer(touch))
}
