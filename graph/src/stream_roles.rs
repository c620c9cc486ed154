//! The role of each GPU stream, and its priority, used by schedules and captures.

use device::Priority;

/// The stream of the longest path: forward pass, activation gradients, update.
pub const MAIN: usize = 0;
/// The stream of weight gradients.
pub const WEIGHT_GRADIENTS: usize = 1;
/// The stream of small nodes that run concurrently and do not delay the main stream.
pub const BESIDE: usize = 2;
/// The stream of all-reduces.
pub const COMMUNICATION: usize = 3;

/// All-reduces have the highest priority, since other ranks wait for them, then the main stream.
pub(crate) fn priority(stream: usize) -> Priority {
    match stream {
        COMMUNICATION => Priority::High,
        WEIGHT_GRADIENTS => Priority::Low,
        _ => Priority::Normal,
    }
}
