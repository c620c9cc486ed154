//! The work of each stream of a GPU, and its priority: for schedules and captures alike.

use device::Priority;

/// The stream of the longest path: forward pass, activation gradients, update.
pub const MAIN: usize = 0;
/// The stream of weight gradients.
pub const WEIGHT_GRADIENTS: usize = 1;
/// The stream of small nodes that run concurrently: the main one need not wait for them.
pub const BESIDE: usize = 2;
/// The stream of all-reduces.
pub const COMMUNICATION: usize = 3;

/// The longest wait gets the highest priority: other ranks, then the longest path of this one.
pub(crate) fn priority(stream: usize) -> Priority {
    match stream {
        COMMUNICATION => Priority::High,
        WEIGHT_GRADIENTS => Priority::Low,
        _ => Priority::Normal,
    }
}
