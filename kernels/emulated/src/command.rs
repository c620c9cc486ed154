//! What queues and captured graphs hold.

use std::sync::Arc;

use device::{DevicePtr, Task};

use crate::staging::Copy;

/// A piece of work.
#[derive(Debug, Clone)]
pub(crate) enum Command {
    Task(Task),
    /// Copies from a pinned buffer to device memory.
    UploadFrom {
        to: DevicePtr,
        copy: Arc<Copy>,
    },
    /// Takes the time for this timing event.
    Stamp(u32),
}
