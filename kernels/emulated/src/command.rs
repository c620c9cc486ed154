//! The commands in queues and captured graphs.

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
    /// Records the time of this timing event.
    Stamp(u32),
}
