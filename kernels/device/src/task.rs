//! A task: one operation on a stream as data, which is a kernel launch, a copy, or an all-reduce.
//!
//! Every task declares which bytes it accesses and how, so a captured list, or a node of a program,
//! may contain any kind of task.

use crate::{Access, DType, Device, DeviceError, DevicePtr, Launch, Pinned, Stream, Touch};

/// One task of a stream.
#[derive(Debug, Clone, PartialEq)]
pub enum Task {
    /// A kernel.
    Launch(Launch),
    /// A copy from pinned host memory.
    Upload(Upload),
    /// A copy within device memory.
    Copy(DeviceCopy),
    /// An all-reduce over the device's group.
    AllReduce(AllReduce),
}

/// A copy from pinned host memory to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upload {
    /// First byte on the device.
    pub to: DevicePtr,
    /// The source.
    pub from: Pinned,
    /// Byte offset in the source.
    pub offset: usize,
    /// Length.
    pub bytes: usize,
}

/// A copy within device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceCopy {
    /// Destination.
    pub to: DevicePtr,
    /// Source.
    pub from: DevicePtr,
    /// Length. The two ranges must not overlap.
    pub bytes: usize,
}

/// An all-reduce: afterwards `to` contains, on each rank, the sum of all ranks' `from`.
///
/// Results are bit-identical on all ranks. All ranks must submit their all-reduces in the same
/// order. The two ranges must not overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllReduce {
    /// First element of the sum.
    pub to: DevicePtr,
    /// First element of this rank's values.
    pub from: DevicePtr,
    /// Number of elements, the same on every rank.
    pub len: usize,
    /// [`DType::F16`] or [`DType::F32`], the same on every rank.
    pub dtype: DType,
}

impl AllReduce {
    /// The length of each range in bytes.
    pub fn bytes(&self) -> usize {
        self.len * self.dtype.size_bytes()
    }
}

impl Task {
    /// The kernel's name, or the kind of task.
    pub fn name(&self) -> &'static str {
        match self {
            Task::Launch(launch) => launch.kernel,
            Task::Upload(_) => "upload",
            Task::Copy(_) => "copy",
            Task::AllReduce(_) => "all_reduce",
        }
    }

    /// The kernel, if it is one.
    pub fn kernel(&self) -> Option<&Launch> {
        match self {
            Task::Launch(launch) => Some(launch),
            _ => None,
        }
    }

    /// All bytes that the task accesses, including pinned memory.
    pub fn touches(&self) -> Vec<Touch> {
        let touch = |ptr, bytes, access| Touch { ptr, bytes, access };
        match self {
            Task::Launch(launch) => launch.touches().collect(),
            Task::Upload(Upload { to, from, offset, bytes }) => vec![
                touch(*to, *bytes, Access::Write),
                touch(from.device_ptr + *offset as DevicePtr, *bytes, Access::Read),
            ],
            Task::Copy(DeviceCopy { to, from, bytes }) => {
                vec![touch(*to, *bytes, Access::Write), touch(*from, *bytes, Access::Read)]
            }
            Task::AllReduce(sum) => vec![
                touch(sum.to, sum.bytes(), Access::Write),
                touch(sum.from, sum.bytes(), Access::Read),
            ],
        }
    }

    /// True if the task does nothing.
    pub fn is_empty(&self) -> bool {
        match self {
            Task::Launch(launch) => launch.is_empty(),
            Task::Upload(upload) => upload.bytes == 0,
            Task::Copy(copy) => copy.bytes == 0,
            Task::AllReduce(sum) => sum.len == 0,
        }
    }

    /// Submits the task to a stream of a device, unless it is empty.
    ///
    /// # Errors
    /// Device errors.
    pub fn submit(&self, device: &dyn Device, stream: Stream) -> Result<(), DeviceError> {
        match self {
            _ if self.is_empty() => Ok(()),
            Task::Launch(launch) => device.launch(stream, launch),
            Task::Upload(Upload { to, from, offset, bytes }) => {
                device.upload(stream, *to, *from, *offset, *bytes)
            }
            Task::Copy(copy) => device.copy(stream, copy),
            Task::AllReduce(sum) => device.all_reduce(stream, sum),
        }
    }
}

impl From<Launch> for Task {
    fn from(launch: Launch) -> Self {
        Task::Launch(launch)
    }
}
