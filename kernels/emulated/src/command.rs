//! What queues and captured graphs hold.

use device::Task;

/// A piece of work.
#[derive(Debug, Clone)]
pub(crate) enum Command {
    Task(Task),
    /// Takes the time for this timing event.
    Stamp(u32),
}
