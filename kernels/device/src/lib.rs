//! Devices: memory, streams, events, launches, capture and replay, behind one trait.
//!
//! | what | where |
//! |---|---|
//! | a tensor's shape and role | [`TensorDesc`], [`Role`] |
//! | a kernel launch as data, with the bytes that it may reach | [`Launch`], [`Touch`] |
//! | whatever a stream runs: launch, copy, sum over ranks | [`Task`] |
//! | what a plan is made for | [`Target`], [`Gpu`] |
//! | what the CUDA sources were compiled to | [`manifest`], [`architecture`] |
//! | the device itself | [`Device`], [`cuda::CudaDevice`] |
//! | launches that open and close a captured step | [`step_ends`], [`stamp`](mod@stamp) |
//!
//! Two devices implement [`Device`]: CUDA, and the emulated one of the tests, which runs the same
//! kernels compiled for the processor. All work is asynchronous and ordered by streams and events;
//! what is captured runs when it is replayed. Only [`Device::download`] and
//! [`Device::synchronize`] make the host wait for the device, and both are counted.
//!
//! A launch is data: kernel, grid, arguments, and the bytes that each argument may reach. Planning
//! needs no device, only its description:
//!
//! ```
//! use device::{Access, Arg, Gpu, Launch, Target, Touch};
//! use device::{Role, TensorDesc};
//!
//! let desc = TensorDesc::new(Role::Activation, &[25, 40]);
//! let target = Target::Gpu(Gpu::a100());
//! assert_eq!((Target::Cpu.bytes(&desc), target.bytes(&desc)), (4000, 2000)); // f32, fp16
//!
//! let y = Touch { ptr: 0x1000, bytes: target.bytes(&desc), access: Access::Write };
//! let threads = desc.len().div_ceil(8); // 8 halves each
//! let fill = Launch::over("fill_f16", threads).arg(Arg::Buffer(y)).arg(1.0f32).len(desc.len());
//! assert_eq!((fill.grid, fill.block), ([1, 1, 1], [256, 1, 1]));
//! assert_eq!(fill.touches().collect::<Vec<_>>(), [y]);
//! ```
//!
//! `graph/examples/04_capture.rs` and `graph/examples/05_race_refused.rs` run launches on the
//! emulated device.

// In a test a panic is the report; everywhere else faults are values.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod architecture;
pub mod cuda;
pub mod launch;
pub mod manifest;
mod pinned;
pub mod stamp;
pub mod step_ends;
pub mod target;
pub mod task;
pub mod tensor;

use std::fmt::Debug;

pub use launch::{
    Access, Arg, BLOCK, Buffer, DevicePtr, Launch, LaunchArgs, StructArg, Touch, Workspace,
};
pub use pinned::{PinnedBuffer, PinnedBytes};
pub use target::{Gpu, Target};
pub use task::{AllReduce, DeviceCopy, Task, Upload};
pub use tensor::{DType, Role, TensorDesc};

/// A queue of work that runs in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stream(pub u32);

/// A point in a stream that others can wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Event(pub u32);

/// A captured list of work, ready to be replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GraphHandle(pub u32);

/// Host memory that the device reaches: pinned, so that copies are asynchronous, and mapped, so
/// that kernels write into it by [`Pinned::device_ptr`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pinned {
    /// Handle in the device that made it.
    pub id: u32,
    /// Length.
    pub bytes: usize,
    /// Address for kernels.
    pub device_ptr: DevicePtr,
}

/// The group of devices that a device belongs to: one process each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranks {
    /// This device's number.
    pub rank: usize,
    /// Devices of the group.
    pub count: usize,
}

impl Ranks {
    /// A device on its own.
    pub const ALONE: Self = Self { rank: 0, count: 1 };
}

/// What a device was asked to do since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Kernels launched one by one, captured ones not counted.
    pub kernel_launches: u64,
    /// Graphs replayed.
    pub graph_launches: u64,
    /// Copies by the host into pinned memory.
    pub pinned_writes: u64,
    /// Copies from host memory to the device.
    pub uploads: u64,
    /// Copies from the device to the host; each waits.
    pub downloads: u64,
    /// Times that the host waited for the device, downloads included.
    pub host_waits: u64,
    /// Allocations of device memory.
    pub allocations: u64,
}

/// How loading one module of kernels ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleLoad {
    /// Its CUDA source, from the checkout's root.
    pub path: String,
    /// What the device says of it.
    pub result: Result<(), DeviceError>,
}

/// Memory of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Bytes that an allocation could have.
    pub free: usize,
    /// All bytes.
    pub total: usize,
}

/// What a device says when something goes wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// There is no such device here.
    #[error("{0}")]
    Absent(String),
    /// Not enough memory.
    #[error("the device has {free} bytes of memory free, {wanted} are wanted")]
    OutOfMemory {
        /// Bytes asked for.
        wanted: usize,
        /// Bytes free.
        free: usize,
    },
    /// No kernel of this name, or one that differs from what its launch gives it.
    #[error("kernel `{kernel}`: {reason}")]
    Kernel {
        /// Name.
        kernel: String,
        /// What is wrong.
        reason: String,
    },
    /// Something that a capture cannot hold.
    #[error("{0} cannot be captured: it would make the host wait, or change memory, at replay")]
    NotCapturable(&'static str),
    /// The driver's own error.
    #[error("{call}: {reason}")]
    Driver {
        /// What was called.
        call: String,
        /// What the driver says.
        reason: String,
    },
}

/// A device that runs launches.
///
/// Handles belong to the device that made them; a foreign one panics. Memory is released by
/// [`Device::free`] or with the device.
pub trait Device: Debug + Send + Sync {
    /// Name and driver, for reports.
    fn name(&self) -> String;

    /// What plans for this device are made for.
    fn gpu(&self) -> &Gpu;

    /// Free and total memory.
    ///
    /// # Errors
    /// The driver's.
    fn memory(&self) -> Result<DeviceMemory, DeviceError>;

    /// Allocates device memory, aligned to 256 bytes, contents undefined.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`]; [`DeviceError::NotCapturable`] during a capture.
    fn alloc(&self, bytes: usize) -> Result<DevicePtr, DeviceError>;

    /// Releases what [`Device::alloc`] gave. Waits for the work that may use it.
    ///
    /// # Errors
    /// The driver's, or [`DeviceError::NotCapturable`].
    fn free(&self, ptr: DevicePtr) -> Result<(), DeviceError>;

    /// Allocates pinned and mapped host memory, all zero.
    ///
    /// # Errors
    /// The driver's.
    fn alloc_pinned(&self, bytes: usize) -> Result<Pinned, DeviceError>;

    /// Releases pinned memory. Waits for the work that may use it.
    ///
    /// # Errors
    /// The driver's, or [`DeviceError::NotCapturable`].
    fn free_pinned(&self, pinned: Pinned) -> Result<(), DeviceError>;

    /// Copies `bytes` into pinned memory, at once, on the host. The caller sees to it that no copy
    /// still in flight reads there.
    fn write_pinned(&self, pinned: Pinned, offset: usize, bytes: &[u8]);

    /// Copies pinned memory out, at once, on the host. Another party may be writing: 4-byte words
    /// are read whole.
    fn read_pinned(&self, pinned: Pinned, offset: usize, bytes: &mut [u8]);

    /// Allocates pinned host memory that its owner fills in place, all zero.
    ///
    /// # Errors
    /// The driver's, or [`DeviceError::NotCapturable`].
    fn pinned_buffer(&self, bytes: usize) -> Result<PinnedBuffer, DeviceError>;

    /// A new stream.
    ///
    /// # Errors
    /// The driver's.
    fn stream(&self) -> Result<Stream, DeviceError>;

    /// A new event.
    ///
    /// # Errors
    /// The driver's.
    fn event(&self) -> Result<Event, DeviceError>;

    /// A new event that also takes the time, for [`Device::elapsed_ms`]. Not for captures.
    ///
    /// # Errors
    /// The driver's.
    fn timing_event(&self) -> Result<Event, DeviceError>;

    /// Milliseconds from one recorded event of [`Device::timing_event`] to another. Waits for the
    /// second.
    ///
    /// # Errors
    /// The driver's, or [`DeviceError::NotCapturable`].
    fn elapsed_ms(&self, start: Event, end: Event) -> Result<f32, DeviceError>;

    /// Loads every module of kernels that is not loaded yet. One that fails does not keep the
    /// others from being tried.
    fn load_kernels(&self) -> Vec<ModuleLoad>;

    /// Marks with `event` what `stream` holds up to now.
    ///
    /// # Errors
    /// The driver's.
    fn record(&self, event: Event, stream: Stream) -> Result<(), DeviceError>;

    /// What follows on `stream` runs after what `event` marks.
    ///
    /// # Errors
    /// The driver's.
    fn wait(&self, stream: Stream, event: Event) -> Result<(), DeviceError>;

    /// Runs a kernel on a stream.
    ///
    /// # Errors
    /// [`DeviceError::Kernel`] if there is no such kernel or its parameters have other sizes.
    fn launch(&self, stream: Stream, launch: &Launch) -> Result<(), DeviceError>;

    /// Copies pinned memory to the device, asynchronously.
    ///
    /// # Errors
    /// The driver's.
    fn upload(
        &self,
        stream: Stream,
        to: DevicePtr,
        from: Pinned,
        offset: usize,
        bytes: usize,
    ) -> Result<(), DeviceError>;

    /// Copies within device memory, asynchronously.
    ///
    /// # Errors
    /// The driver's.
    fn copy(&self, stream: Stream, copy: &DeviceCopy) -> Result<(), DeviceError>;

    /// The group that [`Device::all_reduce`] sums over.
    fn ranks(&self) -> Ranks;

    /// Sums over the ranks of the group, asynchronously. Nothing to do for a device on its own.
    ///
    /// # Errors
    /// The driver's, or another rank that does not take part.
    fn all_reduce(&self, stream: Stream, sum: &AllReduce) -> Result<(), DeviceError>;

    /// Copies the head of a buffer to the device, asynchronously. Until the copy is done nobody can
    /// write the buffer.
    ///
    /// # Errors
    /// The driver's, or [`DeviceError::NotCapturable`].
    fn upload_from(
        &self,
        stream: Stream,
        to: DevicePtr,
        from: &PinnedBuffer,
        bytes: usize,
    ) -> Result<(), DeviceError>;

    /// Waits for the stream, then copies device memory out.
    ///
    /// # Errors
    /// The driver's, or [`DeviceError::NotCapturable`].
    fn download(
        &self,
        stream: Stream,
        from: DevicePtr,
        bytes: &mut [u8],
    ) -> Result<(), DeviceError>;

    /// Waits for everything, and says what went wrong in it.
    ///
    /// # Errors
    /// The first fault of a kernel or copy, or [`DeviceError::NotCapturable`].
    fn synchronize(&self) -> Result<(), DeviceError>;

    /// From here on work of `stream`, and of streams that wait for events recorded in it, is
    /// collected instead of run.
    ///
    /// # Errors
    /// The driver's.
    fn begin_capture(&self, stream: Stream) -> Result<(), DeviceError>;

    /// Ends the capture that began on `stream`. All other streams must have joined it.
    ///
    /// # Errors
    /// What made the capture invalid.
    fn end_capture(&self, stream: Stream) -> Result<GraphHandle, DeviceError>;

    /// Runs a captured graph on a stream.
    ///
    /// # Errors
    /// The driver's.
    fn replay(&self, graph: GraphHandle, stream: Stream) -> Result<(), DeviceError>;

    /// The host has nothing to do until the device has gone on: a short sleep. Waits for nothing
    /// in particular.
    ///
    /// # Errors
    /// A fault of work that was given before, if it is known already.
    fn idle(&self) -> Result<(), DeviceError>;

    /// What was asked of the device so far.
    fn counts(&self) -> Counts;
}
