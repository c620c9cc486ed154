//! The launch that records a timestamp at its position in a stream; timelines consist of such
//! timestamps.

use super::{Access, Arg, DevicePtr, Launch, Touch};

/// Bytes of a timestamp: nanoseconds as `unsigned long long`.
pub const STAMP_BYTES: usize = 8;

/// Writes a timestamp to `to`, which is aligned to 8 bytes. The device's clock has an arbitrary
/// origin and is the same for all streams.
pub fn stamp(to: DevicePtr) -> Launch {
    let touch = Touch { ptr: to, bytes: STAMP_BYTES, access: Access::Write };
    Launch::new("stamp", [1, 1, 1]).block(32).arg(Arg::Buffer(touch))
}
